//! Who is ahead of whom: a pure function of a listing.
//!
//! This is the very function that the locks decide by and that the model checker runs.

use lockkeeper_client::Sequence;

use crate::{Kind, Profile};

/// A contender, as its name tells it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The order of arrival.
    pub sequence: Sequence,
    /// What it asks for.
    pub kind: Kind,
    /// The node's name.
    pub name: String,
}

/// How one contender stands.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Standing {
    /// Nothing that is ahead is in its way.
    Held,
    /// It must wait, and this is the one node to watch: the closest one ahead that is in its way.
    /// Its end is the first event that can change anything.
    WaitOn(String),
    /// It is not in the queue.
    Gone,
}

/// The contenders of one lock, first to last.
///
/// New ones only come in at the end, so a queue that was listed once stays true, for those that
/// were in it, when the ones that have gone are taken out.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Line {
    places: Vec<Place>,
}

/// Names that are no contenders of the lock's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub Vec<String>);

impl Line {
    /// Puts the children of a lock's node in order.
    ///
    /// # Errors
    /// If there are names that are no contenders of these kinds. Whoever they belong to orders
    /// the queue in another way, so nothing can be said about it.
    pub fn read(names: Vec<String>, profile: Profile, kinds: &[Kind]) -> Result<Self, Foreign> {
        let mut places = Vec::with_capacity(names.len());
        let mut foreign = Vec::new();
        for name in names {
            match profile.parse(&name, kinds) {
                Some((kind, sequence)) => places.push(Place { sequence, kind, name }),
                None => foreign.push(name),
            }
        }
        if !foreign.is_empty() {
            foreign.sort();
            return Err(Foreign(foreign));
        }
        places.sort_by(|a, b| (a.sequence, &a.name).cmp(&(b.sequence, &b.name)));
        Ok(Self { places })
    }

    /// How the contender with this name stands.
    pub fn standing(&self, own: &str) -> Standing {
        let Some(index) = self.places.iter().position(|place| place.name == own) else {
            return Standing::Gone;
        };
        let me = self.places[index].kind;
        let mut ahead = self.places[..index].iter().rev();
        match ahead.find(|place| me.is_blocked_by(place.kind)) {
            Some(place) => Standing::WaitOn(place.name.clone()),
            None => Standing::Held,
        }
    }

    /// Takes out a contender that has gone.
    pub fn remove(&mut self, name: &str) {
        self.places.retain(|place| place.name != name);
    }

    /// The contenders, first to last.
    pub fn places(&self) -> &[Place] {
        &self.places
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(names: &[&str]) -> Line {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        Line::read(names, Profile::Curator, &[Kind::Exclusive, Kind::Read, Kind::Write]).unwrap()
    }

    fn wait_on(name: &str) -> Standing {
        Standing::WaitOn(name.to_owned())
    }

    #[test]
    fn the_first_holds_and_everyone_else_waits_for_the_one_before() {
        let line = line(&["b-lock-0000000002", "c-lock-0000000010", "a-lock-0000000001"]);
        assert_eq!(line.standing("a-lock-0000000001"), Standing::Held);
        assert_eq!(line.standing("b-lock-0000000002"), wait_on("a-lock-0000000001"));
        assert_eq!(line.standing("c-lock-0000000010"), wait_on("b-lock-0000000002"));
        assert_eq!(line.standing("d-lock-0000000003"), Standing::Gone);
    }

    #[test]
    fn order_is_by_number_and_not_by_what_stands_before_it() {
        let line = line(&["a-lock-0000000002", "z-lock-0000000001"]);
        assert_eq!(line.standing("z-lock-0000000001"), Standing::Held);
    }

    /// L11: an overflowed sequence gave two holders, because negative numbers were compared as
    /// text, where they come first and run backwards.
    #[test]
    fn l11_overflowed_numbers_have_one_order() {
        let line = line(&["a-lock--000000001", "b-lock--000000002", "c-lock-0000000000"]);
        assert_eq!(line.standing("b-lock--000000002"), Standing::Held);
        assert_eq!(line.standing("a-lock--000000001"), wait_on("b-lock--000000002"));
        assert_eq!(line.standing("c-lock-0000000000"), wait_on("a-lock--000000001"));
    }

    /// L14: readers and writers that watched contenders behind them waited for each other.
    /// L16: readers that watched the first writer all woke for every writer.
    #[test]
    fn l14_l16_a_reader_waits_for_the_nearest_writer_ahead() {
        let line = line(&[
            "a-__READ__0000000001",
            "b-__WRIT__0000000002",
            "c-__WRIT__0000000003",
            "d-__READ__0000000004",
            "e-__READ__0000000005",
            "f-__WRIT__0000000006",
        ]);
        assert_eq!(line.standing("a-__READ__0000000001"), Standing::Held);
        assert_eq!(line.standing("b-__WRIT__0000000002"), wait_on("a-__READ__0000000001"));
        assert_eq!(line.standing("d-__READ__0000000004"), wait_on("c-__WRIT__0000000003"));
        assert_eq!(line.standing("e-__READ__0000000005"), wait_on("c-__WRIT__0000000003"));
        assert_eq!(line.standing("f-__WRIT__0000000006"), wait_on("e-__READ__0000000005"));
    }

    /// L9: the one ahead disappears between the listing and the watch.
    #[test]
    fn l9_a_line_stays_true_when_those_who_left_are_taken_out() {
        let mut line = line(&["a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"]);
        line.remove("b-lock-0000000002");
        assert_eq!(line.standing("c-lock-0000000003"), wait_on("a-lock-0000000001"));
        line.remove("a-lock-0000000001");
        assert_eq!(line.standing("c-lock-0000000003"), Standing::Held);
    }

    /// L23: a foreign child broke the queue. Ours names it and refuses.
    #[test]
    fn l23_foreign_names_are_refused_and_named() {
        let names = ["a-lock-0000000001", "x__lock__0000000000", "config"];
        let names = names.map(str::to_owned).to_vec();
        let foreign = Line::read(names, Profile::Curator, &[Kind::Exclusive]).unwrap_err();
        assert_eq!(foreign.0, ["config", "x__lock__0000000000"]);
    }
}
