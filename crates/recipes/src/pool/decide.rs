//! Which waiter may take which thing, and what the others wait for. No I/O.
//!
//! A free thing goes to the first waiter that wants it and is not at its limit. A waiter that cannot take a thing
//! waits for the changes that could let it. It need not react to every change: an earlier waiter *covers* a thing
//! for it if the earlier one could take the thing whenever this one could. While the earlier one is in line, the
//! thing is not for this one.

use std::collections::{BTreeMap, BTreeSet};

/// The maximum number of things that are watched one by one.
const MAX_SINGLE_WATCHES: usize = 8;

/// The things that a waiter would take.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wants {
    /// Only things in the stored set.
    pub(super) stored: bool,
    /// Only these things; `None` for any.
    pub(super) only: Option<BTreeSet<String>>,
}

impl Wants {
    /// Whether it would take a thing, apart from the condition on the stored set.
    fn may_be(&self, thing: &str) -> bool {
        self.only.as_ref().is_none_or(|only| only.contains(thing))
    }

    pub(super) fn has(&self, thing: &str, stored: &BTreeSet<String>) -> bool {
        self.may_be(thing) && (!self.stored || stored.contains(thing))
    }
}

/// The maximum number of things of one holder, in all its programs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Quota {
    pub(super) holder: String,
    pub(super) at_most: u32,
}

/// A waiter.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Waiter {
    pub(super) wants: Wants,
    pub(super) quota: Option<Quota>,
}

impl Waiter {
    /// Whether it could take its things whenever the other waiter could, except for the set of things.
    fn covers(&self, other: &Waiter) -> bool {
        let by_quota = match (&self.quota, &other.quota) {
            (None, _) => true,
            (Some(own), Some(of_other)) => {
                own.holder == of_other.holder && own.at_most >= of_other.at_most
            }
            (Some(_), None) => false,
        };
        by_quota && (!self.wants.stored || other.wants.stored)
    }
}

/// The held things and places at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct HeldNow {
    pub(super) things: BTreeSet<String>,
    /// The numbers of the places that each holder has taken.
    pub(super) places: BTreeMap<String, BTreeSet<u32>>,
}

impl HeldNow {
    /// A free place for this waiter (`Some(None)` if it needs none); `None` if it is at its limit.
    fn place_for(&self, waiter: &Waiter) -> Option<Option<u32>> {
        let Some(quota) = &waiter.quota else { return Some(None) };
        let taken = self.places.get(&quota.holder);
        let mut free =
            (0..quota.at_most).filter(|it| taken.is_none_or(|taken| !taken.contains(it)));
        free.next().map(Some)
    }
}

/// What a waiter does next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Decision {
    /// It takes this thing, and this place of its holder.
    Take { thing: String, place: Option<u32> },
    /// It waits until one of these changes.
    Wait(BTreeSet<Watched>),
}

/// What a waiter watches.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Watched {
    /// The waiter at this position in line leaves it.
    Leaves(usize),
    /// This thing is given back.
    Thing(String),
    /// Any thing is taken or given back.
    Held,
    /// The stored set changes.
    Set,
}

/// The state of a pool at one moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Known<'a> {
    /// The earlier waiters in line.
    pub(super) earlier: &'a [Waiter],
    pub(super) held: &'a HeldNow,
    pub(super) stored: &'a BTreeSet<String>,
}

/// Decides for a waiter that may take these things, in this order.
pub(super) fn decide(own: &Waiter, choices: &[String], known: Known<'_>) -> Decision {
    if let Some(place) = known.held.place_for(own) {
        let free = choices.iter().find(|it| known.is_free(it) && known.taker(it).is_none());
        if let Some(thing) = free {
            return Decision::Take { thing: thing.clone(), place };
        }
    }
    Decision::Wait(known.watched_by(own, choices))
}

impl Known<'_> {
    fn is_free(&self, thing: &str) -> bool {
        !self.held.things.contains(thing)
    }

    /// The last earlier waiter that would take a thing.
    fn taker(&self, thing: &str) -> Option<usize> {
        self.earlier
            .iter()
            .rposition(|it| it.wants.has(thing, self.stored) && self.held.place_for(it).is_some())
    }

    fn watched_by(&self, own: &Waiter, choices: &[String]) -> BTreeSet<Watched> {
        let last = |covers: &dyn Fn(&Waiter) -> bool| {
            self.earlier.iter().rposition(|it| it.covers(own) && covers(it))
        };
        let things: Vec<&String> = match &own.wants.only {
            Some(only) => only.iter().collect(),
            // Includes things that are added to the set later.
            None => match last(&|it| it.wants.only.is_none()) {
                Some(place) => return BTreeSet::from([Watched::Leaves(place)]),
                None => choices.iter().collect(),
            },
        };

        let (mut leaves, mut uncovered) = (BTreeSet::new(), Vec::new());
        let mut looks_at_places = own.quota.is_some();
        for thing in things {
            let covers = |it: &Waiter| it.covers(own) && it.wants.may_be(thing);
            if leaves.iter().any(|place: &usize| covers(&self.earlier[*place])) {
                continue;
            }
            if let Some(place) = last(&|it| it.wants.may_be(thing)) {
                leaves.insert(place);
                continue;
            }
            uncovered.push(thing);
            // It may leave without having taken the thing, or reach its limit.
            if self.is_free(thing)
                && let Some(place) = self.taker(thing)
            {
                leaves.insert(place);
                looks_at_places |= self.earlier[place].quota.is_some();
            }
        }

        let mut watched: BTreeSet<_> = leaves.into_iter().map(Watched::Leaves).collect();
        if uncovered.is_empty() && own.wants.only.is_some() {
            return watched;
        }
        if own.wants.stored || self.earlier.iter().any(|it| it.wants.stored) {
            watched.insert(Watched::Set);
        }
        // A free thing that is for another waiter will not be given back.
        match own.wants.only.is_some() && !looks_at_places && uncovered.len() <= MAX_SINGLE_WATCHES
        {
            true => watched.extend(
                uncovered.into_iter().filter(|it| !self.is_free(it)).cloned().map(Watched::Thing),
            ),
            false => drop(watched.insert(Watched::Held)),
        }
        watched
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A waiter for one of these given things.
    fn wants(only: &[&str]) -> Waiter {
        let only = Some(names(only).into_iter().collect());
        Waiter { wants: Wants { stored: false, only }, quota: None }
    }

    /// A waiter for any stored thing.
    fn anything() -> Waiter {
        Waiter { wants: Wants { stored: true, only: None }, quota: None }
    }

    fn of(holder: &str, at_most: u32, waiter: Waiter) -> Waiter {
        Waiter { quota: Some(Quota { holder: holder.to_owned(), at_most }), ..waiter }
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().copied().map(str::to_owned).collect()
    }

    fn held(things: &[&str], places: &[(&str, u32)]) -> HeldNow {
        let mut held =
            HeldNow { things: names(things).into_iter().collect(), ..HeldNow::default() };
        for (holder, number) in places {
            held.places.entry((*holder).to_owned()).or_default().insert(*number);
        }
        held
    }

    /// The decision of a waiter behind these; the set is a, b and c.
    fn decided(own: &Waiter, earlier: &[Waiter], held: &HeldNow) -> Decision {
        let set = names(&["a", "b", "c"]);
        let stored = set.iter().cloned().collect();
        let choices: Vec<_> = set.into_iter().filter(|it| own.wants.may_be(it)).collect();
        decide(own, &choices, Known { earlier, held, stored: &stored })
    }

    fn takes(thing: &str) -> Decision {
        Decision::Take { thing: thing.to_owned(), place: None }
    }

    fn waits<const N: usize>(watched: [Watched; N]) -> Decision {
        Decision::Wait(BTreeSet::from(watched))
    }

    fn thing(name: &str) -> Watched {
        Watched::Thing(name.to_owned())
    }

    #[test]
    fn a_free_thing_is_for_the_first_that_wants_it() {
        let some = held(&["a"], &[]);
        assert_eq!(decided(&wants(&["a", "b"]), &[], &some), takes("b"));
        assert_eq!(decided(&wants(&["b", "c"]), &[wants(&["b"])], &some), takes("c"));
        assert_eq!(decided(&wants(&["b"]), &[wants(&["a"])], &some), takes("b"));
        assert_eq!(decided(&wants(&["b"]), &[wants(&["b"])], &some), waits([Watched::Leaves(0)]));
        assert_eq!(decided(&anything(), &[], &some), takes("b"));
    }

    #[test]
    fn a_waiter_at_its_limit_is_passed() {
        let full = held(&["a"], &[("ann", 0)]);
        let ann = of("ann", 1, wants(&["b"]));
        assert_eq!(decided(&ann, &[], &full), waits([Watched::Held]));
        assert_eq!(decided(&wants(&["b"]), std::slice::from_ref(&ann), &full), takes("b"));
        // While it may take more, it goes first, and those behind it watch its limit.
        let room = held(&["a"], &[]);
        let blocked = waits([Watched::Leaves(0), Watched::Held]);
        assert_eq!(decided(&wants(&["b"]), std::slice::from_ref(&ann), &room), blocked);
        let place = |number| Decision::Take { thing: "b".to_owned(), place: Some(number) };
        assert_eq!(decided(&ann, &[], &room), place(0));
        assert_eq!(
            decided(&of("ann", 3, wants(&["b"])), &[], &held(&[], &[("ann", 0), ("ann", 2)])),
            place(1)
        );
    }

    #[test]
    fn only_the_first_looks_at_changes_if_all_want_the_same() {
        let all = held(&["a", "b", "c"], &[]);
        let line = [wants(&["a", "b"]), wants(&["a", "b"])];
        assert_eq!(decided(&line[0], &[], &all), waits([thing("a"), thing("b")]));
        assert_eq!(decided(&line[0], &line, &all), waits([Watched::Leaves(1)]));
        let line = [anything(), anything()];
        assert_eq!(decided(&line[0], &[], &all), waits([Watched::Held, Watched::Set]));
        assert_eq!(decided(&line[0], &line, &all), waits([Watched::Leaves(1)]));
        // One for each holder.
        let line = [of("ann", 1, anything()), of("bob", 1, anything())];
        assert_eq!(decided(&line[0], &line, &all), waits([Watched::Leaves(0)]));
        assert_eq!(
            decided(&of("ann", 2, anything()), &line, &all),
            waits([Watched::Held, Watched::Set])
        );
    }

    #[test]
    fn a_waiter_that_wants_more_watches_the_rest() {
        let all = held(&["a", "b", "c"], &[]);
        let line = [wants(&["a"]), wants(&["b"])];
        assert_eq!(
            decided(&wants(&["a", "b", "c"]), &line, &all),
            waits([Watched::Leaves(0), Watched::Leaves(1), thing("c")])
        );
        assert_eq!(
            decided(&wants(&["a", "b"]), &line, &all),
            waits([Watched::Leaves(0), Watched::Leaves(1)])
        );
        // A waiter that takes only stored things does not cover one that takes others.
        let watched = [thing("a"), Watched::Set];
        assert_eq!(decided(&wants(&["a"]), &[anything()], &all), waits(watched));
    }

    /// A pool in which each waiter acts on its decisions, some time after it was woken and only then.
    #[derive(Debug)]
    struct Simulated {
        stored: BTreeSet<String>,
        held: HeldNow,
        holders: BTreeMap<String, (usize, Option<(String, u32)>)>,
        /// Each waiter with its index.
        line: Vec<(usize, Waiter)>,
        watches: BTreeMap<usize, BTreeSet<(Watched, Option<usize>)>>,
        /// The waiters that were woken and have not decided yet.
        woken: Vec<usize>,
    }

    impl Simulated {
        fn choices(&self, waiter: &Waiter) -> Vec<String> {
            let all = names(&["a", "b", "c", "d"]);
            all.into_iter().filter(|it| waiter.wants.has(it, &self.stored)).collect()
        }

        fn decide(&self, place: usize) -> Decision {
            let earlier: Vec<_> = self.line[..place].iter().map(|it| it.1.clone()).collect();
            let own = &self.line[place].1;
            let known = Known { earlier: &earlier, held: &self.held, stored: &self.stored };
            decide(own, &self.choices(own), known)
        }

        fn look(&mut self, id: usize) {
            let Some(place) = self.line.iter().position(|it| it.0 == id) else { return };
            match self.decide(place) {
                Decision::Take { thing, place: number } => {
                    let (_, waiter) = self.line.remove(place);
                    self.watches.remove(&id);
                    let quota = waiter.quota.zip(number).map(|(it, number)| (it.holder, number));
                    if let Some((holder, number)) = &quota {
                        assert!(
                            self.held.places.entry(holder.clone()).or_default().insert(*number)
                        );
                    }
                    assert!(self.held.things.insert(thing.clone()));
                    self.holders.insert(thing.clone(), (id, quota));
                    self.wake(|it| {
                        matches!(it, (Watched::Held, _)) || *it == (Watched::Leaves(0), Some(id))
                    });
                }
                Decision::Wait(watched) => {
                    let line = &self.line;
                    let seen = watched.into_iter().map(|it| match it {
                        // By its id, because positions change.
                        Watched::Leaves(place) => (Watched::Leaves(0), Some(line[place].0)),
                        it => (it, None),
                    });
                    let seen = seen.collect();
                    self.watches.insert(id, seen);
                }
            }
        }

        fn wake(&mut self, changed: impl Fn(&(Watched, Option<usize>)) -> bool) {
            let woken: Vec<_> = self
                .watches
                .iter()
                .filter(|it| it.1.iter().any(&changed))
                .map(|it| *it.0)
                .collect();
            self.woken.extend(woken);
        }

        fn leave(&mut self, id: usize) {
            self.line.retain(|it| it.0 != id);
            self.watches.remove(&id);
            self.wake(|it| *it == (Watched::Leaves(0), Some(id)));
        }

        fn give_back(&mut self, name: &str) {
            let Some((_, quota)) = self.holders.remove(name) else { return };
            self.held.things.remove(name);
            if let Some((holder, number)) = quota {
                self.held.places.entry(holder).or_default().remove(&number);
            }
            self.wake(|(it, _)| *it == Watched::Held || *it == thing(name));
        }

        fn change(&mut self, name: &str) {
            if !self.stored.remove(name) {
                self.stored.insert(name.to_owned());
            }
            self.wake(|(it, _)| *it == Watched::Set);
        }

        /// Whether each waiter would decide to wait.
        fn is_settled(&self) -> bool {
            (0..self.line.len()).all(|place| matches!(self.decide(place), Decision::Wait(_)))
        }
    }

    fn waiter() -> impl Strategy<Value = Waiter> {
        let some = proptest::sample::subsequence(vec!["a", "b", "c", "d"], 1..4);
        let quota = proptest::option::of((proptest::sample::select(vec!["ann", "bob"]), 1..3_u32));
        (some, 0..4, quota).prop_map(|(some, sort, quota)| {
            let waiter = match sort {
                0 => anything(),
                1 => Waiter { wants: Wants { stored: true, ..wants(&some).wants }, quota: None },
                _ => wants(&some),
            };
            match quota {
                Some((holder, at_most)) => of(holder, at_most, waiter),
                None => waiter,
            }
        })
    }

    #[derive(Clone, Debug)]
    enum Event {
        Comes(Waiter),
        Leaves(prop::sample::Index),
        GivesBack(&'static str),
        Changes(&'static str),
        Looks(prop::sample::Index),
    }

    fn event() -> impl Strategy<Value = Event> {
        let name = || proptest::sample::select(vec!["a", "b", "c", "d"]);
        prop_oneof![
            4 => waiter().prop_map(Event::Comes),
            1 => any::<prop::sample::Index>().prop_map(Event::Leaves),
            3 => name().prop_map(Event::GivesBack),
            1 => name().prop_map(Event::Changes),
            8 => any::<prop::sample::Index>().prop_map(Event::Looks),
        ]
    }

    proptest! {
        // A waiter that is covered by another one's limit occurs in one case of a hundred.
        #![proptest_config(ProptestConfig::with_cases(2048))]

        /// Fails if any of the watches is left out.
        #[test]
        fn no_waiter_waits_for_a_thing_that_it_could_take(events in prop::collection::vec(event(), 1..60)) {
            let mut pool = Simulated {
                stored: names(&["a", "b"]).into_iter().collect(),
                held: HeldNow::default(),
                holders: BTreeMap::new(),
                line: Vec::new(),
                watches: BTreeMap::new(),
                woken: Vec::new(),
            };
            for (id, event) in events.into_iter().enumerate() {
                match event {
                    Event::Comes(waiter) => {
                        pool.line.push((id, waiter));
                        pool.woken.push(id);
                    }
                    Event::Leaves(index) if !pool.line.is_empty() => {
                        let place = index.index(pool.line.len());
                        pool.leave(pool.line[place].0);
                    }
                    Event::Leaves(_) => {}
                    Event::GivesBack(name) => pool.give_back(name),
                    Event::Changes(name) => pool.change(name),
                    Event::Looks(index) if !pool.woken.is_empty() => {
                        let place = index.index(pool.woken.len());
                        let id = pool.woken.swap_remove(place);
                        pool.look(id);
                    }
                    Event::Looks(_) => {}
                }
            }
            while let Some(id) = pool.woken.pop() {
                pool.look(id);
            }
            prop_assert!(pool.is_settled(), "{pool:?}");
        }
    }
}
