//! Who is ahead of whom: a pure function of a listing.
//!
//! This is the very function that the locks decide by, in production, in the simulation and in the
//! model.

use lockkeeper_client::{Sequence, Stat, ZnodePath, Zxid};

use crate::profile::{Kind, Profile};

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
    /// It must wait, and these are the nodes to watch: the closest ones ahead of which one must
    /// go before anything can change for it. One node, except where permits are counted; none if
    /// it asks for more permits than there are.
    WaitOn(Vec<String>),
    /// One that was ahead has gone. Those further ahead may have gone long since, or what has gone
    /// may have left another in its place: only a new listing can tell.
    ListAgain,
    /// It is not in the queue.
    Gone,
}

/// How a reader that holds, and may upgrade, stands on its way to being alone.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Upgrade {
    /// No other reader holds, and none can for as long as this writer is in line: the first one.
    Clear(String),
    /// This reader holds too.
    WaitOn(String),
    /// It is not in the queue, or no writer keeps new readers out.
    Gone,
}

/// The contenders of one lock, first to last.
///
/// New ones come in at the end, so who is not in the way when the queue is listed will not be
/// later, and whoever was behind the only one holds when that one has gone. The exception is a
/// contender that is replaced by one of another kind at the same number ([`Kind::may_become`]).
/// Where more is to be known, [`Standing::ListAgain`] asks for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct WaitQueue {
    places: Vec<Place>,
    /// What those that were taken out were.
    gone: Vec<Kind>,
    permits: u32,
    /// How the lock's node was when it was listed.
    listed: Listed,
}

/// The last transactions that had created the lock's node, changed its data, and changed the queue;
/// and how many nodes had been created in it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct Listed {
    created: Zxid,
    changed: Zxid,
    queue: Zxid,
    /// Twice the number of the next node: a server counts in `cversion` what was created and what was
    /// deleted, so with the children that are there, it has all that were created twice.
    twice_next: i32,
}

impl Default for WaitQueue {
    fn default() -> Self {
        Self { places: Vec::new(), gone: Vec::new(), permits: 1, listed: Listed::default() }
    }
}

/// Names that are no contenders of the lock's profile.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Foreign(pub Vec<String>);

impl WaitQueue {
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
        Ok(Self { places, ..Self::default() })
    }

    /// How the contender with this name stands.
    pub fn standing(&self, own: &str) -> Standing {
        let Some(index) = self.places.iter().position(|place| place.name == own) else {
            return Standing::Gone;
        };
        let (me, ahead) = (self.places[index].kind, &self.places[..index]);

        let in_the_way = match me.permits() {
            Some(wanted) => self.beyond_the_permits(wanted, ahead),
            None => ahead.iter().rev().find(|place| me.is_blocked_by(place.kind)).map(closest),
        };

        match in_the_way {
            // In a queue that moves, whoever was before the one that has gone has gone earlier.
            // One listing tells; to look for each of them would cost a round trip each.
            Some(_) if !self.gone.is_empty() => Standing::ListAgain,
            Some(closest) => Standing::WaitOn(closest),
            None if self.may_be_outdated(me, ahead) => Standing::ListAgain,
            None => Standing::Held,
        }
    }

    /// The closest ones ahead that take so many permits that one of them must go before `wanted`
    /// are left; `None` if they are.
    ///
    /// When they are, those that remain ahead take less than the ones given here, so one of these
    /// has gone by then: nobody is woken for nothing, except by one that is not the last to go.
    fn beyond_the_permits(&self, wanted: u32, ahead: &[Place]) -> Option<Vec<String>> {
        let (wanted, limit) = (u64::from(wanted), u64::from(self.permits));
        if wanted + ahead.iter().map(permits_of).sum::<u64>() <= limit {
            return None;
        }
        let mut taken = wanted;
        let closest = ahead.iter().rev().take_while(|place| {
            let enough = taken > limit;
            taken += permits_of(place);
            !enough
        });
        Some(closest.map(|place| place.name.clone()).collect())
    }

    /// Whether something that was ahead, or is, may have been replaced since the listing by
    /// something that is in the way.
    fn may_be_outdated(&self, me: Kind, ahead: &[Place]) -> bool {
        let present = ahead.iter().map(|place| place.kind);
        let mut kinds = self.gone.iter().copied().chain(present);
        !self.gone.is_empty()
            && kinds.any(|kind| kind.may_become().iter().any(|kind| me.is_blocked_by(*kind)))
    }

    /// How the reader with this name stands, which holds and wants to be alone.
    ///
    /// Readers behind a writer do not hold, and those in line for an upgrade wait for this one.
    pub fn upgrade(&self, own: &str) -> Upgrade {
        let first = self.places.iter().position(|place| place.kind == Kind::Write);
        let listed = self.places.iter().any(|place| place.name == own);
        let Some(first) = first.filter(|_| listed) else { return Upgrade::Gone };
        match self.places[..first].iter().rev().find(|place| place.kind == Kind::Read) {
            Some(reader) => Upgrade::WaitOn(reader.name.clone()),
            None => Upgrade::Clear(self.places[first].name.clone()),
        }
    }

    /// Takes out a contender that has gone.
    pub fn remove(&mut self, name: &str) {
        let Some(index) = self.places.iter().position(|place| place.name == name) else { return };
        self.gone.push(self.places.remove(index).kind);
    }

    /// What the holder with this node knows of the end of the queue.
    ///
    /// `None` if a contender was taken out since the listing: in a queue that moves, others have
    /// probably come in the meantime. And `None` unless the last contender is the last that was
    /// created, by its number and by the server's count: that excludes names that no server has
    /// numbered, and servers that count in another way.
    pub fn tail(&self, node: &ZnodePath) -> Option<QueueTail> {
        let last = self.places.last().filter(|_| !self.has_changed())?.sequence;
        let next = last.0.checked_add(1)?;
        if next.wrapping_mul(2) != self.listed.twice_next {
            return None;
        }

        let own = node.name();
        let others = self.places.iter().rev().filter(|place| place.name != own).take(2);
        let mut others: Vec<_> = others.cloned().collect();
        others.reverse();
        Some(QueueTail { node: node.clone(), next: Sequence(next), others })
    }

    /// Whether a contender was taken out since the listing.
    pub fn has_changed(&self) -> bool {
        !self.gone.is_empty()
    }

    /// Whether nothing may be in the way of the contender with this name when one of those has gone
    /// that [`Standing::WaitOn`] named. If not, it needs a new listing before it holds.
    pub fn is_next(&self, own: &str, closest: &[String]) -> bool {
        let Some(index) = self.places.iter().position(|place| place.name == own) else {
            return false;
        };
        let (me, ahead) = (self.places[index].kind, &self.places[..index]);
        let Some(wanted) = me.permits() else {
            return ahead.iter().filter(|place| me.is_blocked_by(place.kind)).count() <= 1;
        };
        closest.iter().any(|gone| {
            let remain = ahead.iter().filter(|place| place.name != *gone);
            u64::from(wanted) + remain.map(permits_of).sum::<u64>() <= u64::from(self.permits)
        })
    }

    /// Sets how many permits there are; one, unless it is said.
    pub fn set_permits(&mut self, permits: u32) {
        self.permits = permits;
    }

    /// How many permits there are.
    pub fn permits(&self) -> u32 {
        self.permits
    }

    /// The contenders, first to last.
    pub fn places(&self) -> &[Place] {
        &self.places
    }

    /// Says how the lock's node was when it was listed.
    pub fn set_listed(&mut self, lock: &Stat) {
        let (created, changed, queue) = (lock.czxid, lock.mzxid, lock.pzxid);
        let twice_next = lock.cversion.wrapping_add(lock.num_children);
        self.listed = Listed { created, changed, queue, twice_next };
    }

    /// Whether a contender that holds now has a token in the transaction that created it, because
    /// nobody who held before it has a larger one.
    ///
    /// Whoever takes the place of others, or overtakes them, writes to the lock's own node in the
    /// same transaction. As long as nobody has, tokens are in the order of the queue. From then
    /// on, those who waited for it make theirs when they hold; and those who come later may find
    /// one of these ahead of them, unless they come when nobody is in their way.
    pub fn vouches_for(&self, own: Zxid) -> bool {
        let Listed { created, changed, queue, .. } = self.listed;
        let at_once = self.gone.is_empty() && queue == own;
        changed == created || changed < own && at_once
    }
}

/// What a holder that gives its node back knows of the end of the queue: enough for the next
/// contender of the same handle, if its node is created in the very transaction that deletes the
/// holder's.
///
/// A server numbers the nodes that are created in a parent one after the other, and up to that
/// transaction the parent was the one that was listed, because the holder's node was in it. So if the
/// new node has the number that was the next one then, nobody has come since.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct QueueTail {
    /// The holder's node.
    node: ZnodePath,
    /// The number of the next node.
    next: Sequence,
    /// The last two contenders but for the holder. One that has two ahead lists again when its turn
    /// comes, and so does one that has more.
    others: Vec<Place>,
}

impl QueueTail {
    /// The node that the next contender's has to replace.
    pub fn node(&self) -> &ZnodePath {
        &self.node
    }

    /// The queue with this contender at its end; `None` if others may have come before it.
    pub fn with(&self, new: Place) -> Option<WaitQueue> {
        if new.sequence != self.next {
            return None;
        }
        // The lock's node may have been written to since: it vouches for no token.
        let changed = Zxid(i64::MAX);
        let twice_next = new.sequence.0.wrapping_add(1).wrapping_mul(2);
        let listed = Listed { changed, twice_next, ..Listed::default() };
        let mut places = self.others.clone();
        places.push(new);
        Some(WaitQueue { places, listed, ..WaitQueue::default() })
    }

    /// Whether nobody else was in the queue.
    pub fn is_whole_queue(&self) -> bool {
        self.others.is_empty()
    }
}

/// How many permits it takes.
fn permits_of(place: &Place) -> u64 {
    u64::from(place.kind.permits().unwrap_or(u32::MAX))
}

fn closest(place: &Place) -> Vec<String> {
    vec![place.name.clone()]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn queue(names: &[&str]) -> WaitQueue {
        let names = names.iter().map(|name| (*name).to_owned()).collect();
        let kinds = [Kind::Exclusive, Kind::Upgradeable, Kind::Read, Kind::Write, Kind::Permits(1)];
        WaitQueue::read(names, Profile::Curator, &kinds).unwrap()
    }

    fn node(name: &str) -> ZnodePath {
        ZnodePath::new("/lock").and_then(|lock| lock.child(name)).unwrap()
    }

    fn wait_on(name: &str) -> Standing {
        Standing::WaitOn(vec![name.to_owned()])
    }

    #[test]
    fn the_first_holds_and_everyone_else_waits_for_the_one_before() {
        let queue = queue(&["b-lock-0000000002", "c-lock-0000000010", "a-lock-0000000001"]);
        assert_eq!(queue.standing("a-lock-0000000001"), Standing::Held);
        assert_eq!(queue.standing("b-lock-0000000002"), wait_on("a-lock-0000000001"));
        assert_eq!(queue.standing("c-lock-0000000010"), wait_on("b-lock-0000000002"));
        assert_eq!(queue.standing("d-lock-0000000003"), Standing::Gone);
    }

    /// The listing's answer for the contender, and what comes when one of those it names has gone.
    fn next_after(queue: &WaitQueue, own: &str) -> (bool, Vec<Standing>) {
        let Standing::WaitOn(closest) = queue.standing(own) else { panic!("it does not wait") };
        let after = closest.iter().map(|gone| {
            let mut queue = queue.clone();
            queue.remove(gone);
            queue.standing(own)
        });
        (queue.is_next(own, &closest), after.collect())
    }

    #[test]
    fn the_next_one_holds_without_a_new_listing() {
        let locks = queue(&["a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"]);
        assert_eq!(next_after(&locks, "b-lock-0000000002"), (true, vec![Standing::Held]));
        assert_eq!(next_after(&locks, "c-lock-0000000003"), (false, vec![Standing::ListAgain]));
        assert!(!locks.is_next("d-lock-0000000004", &[]));
        let names: Vec<_> = (0..5).map(|number| format!("x-1-permits-{number:010}")).collect();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        for (ahead, is_next) in [(3, true), (4, false)] {
            let mut permits = queue(&names[..=ahead]);
            permits.set_permits(3);
            let (next, after) = next_after(&permits, names[ahead]);
            assert_eq!(next, is_next);
            assert_eq!(after.contains(&Standing::Held), is_next, "{after:?}");
        }
    }

    #[test]
    fn order_is_by_number_and_not_by_what_stands_before_it() {
        let queue = queue(&["a-lock-0000000002", "z-lock-0000000001"]);
        assert_eq!(queue.standing("z-lock-0000000001"), Standing::Held);
    }

    /// L11: an overflowed sequence gave two holders, because negative numbers were compared as
    /// text, where they come first and run backwards.
    ///
    /// Seen to fail with the names sorted as text: another one holds.
    #[test]
    fn l11_overflowed_numbers_have_one_order() {
        let queue = queue(&["a-lock--000000001", "b-lock--000000002", "c-lock-0000000000"]);
        assert_eq!(queue.standing("b-lock--000000002"), Standing::Held);
        assert_eq!(queue.standing("a-lock--000000001"), wait_on("b-lock--000000002"));
        assert_eq!(queue.standing("c-lock-0000000000"), wait_on("a-lock--000000001"));
    }

    /// The last to come did so after an upgrade, and before one that had come before it had made a
    /// token for itself: its own creation is older than that token.
    #[test]
    fn creations_are_tokens_until_somebody_was_overtaken() {
        let own = Zxid(9);
        let vouches = |created, changed, last_child| {
            let mut queue = queue(&["a-__WRIT__0000000001", "b-__WRIT__0000000002"]);
            let [czxid, mzxid, pzxid] = [created, changed, last_child].map(Zxid);
            queue.set_listed(&Stat { czxid, mzxid, pzxid, ..Stat::default() });
            let at_once = queue.vouches_for(own);
            queue.remove("a-__WRIT__0000000001");
            (at_once, queue.vouches_for(own))
        };
        assert_eq!(vouches(3, 3, 9), (true, true), "nobody ever overtakes");
        assert_eq!(vouches(3, 11, 12), (false, false), "it was overtaken");
        assert_eq!(vouches(3, 8, 9), (true, false), "another one was, and may be ahead");
        assert_eq!(vouches(3, 8, 10), (false, false), "or may have left just now");
    }

    /// L14: readers and writers that watched contenders behind them waited for each other.
    /// L16: readers that watched the first writer all woke for every writer.
    #[test]
    fn l14_l16_a_reader_waits_for_the_nearest_writer_ahead() {
        let queue = queue(&[
            "a-__READ__0000000001",
            "b-__WRIT__0000000002",
            "c-__WRIT__0000000003",
            "d-__READ__0000000004",
            "e-__READ__0000000005",
            "f-__WRIT__0000000006",
        ]);
        assert_eq!(queue.standing("a-__READ__0000000001"), Standing::Held);
        assert_eq!(queue.standing("b-__WRIT__0000000002"), wait_on("a-__READ__0000000001"));
        assert_eq!(queue.standing("d-__READ__0000000004"), wait_on("c-__WRIT__0000000003"));
        assert_eq!(queue.standing("e-__READ__0000000005"), wait_on("c-__WRIT__0000000003"));
        assert_eq!(queue.standing("f-__WRIT__0000000006"), wait_on("e-__READ__0000000005"));
    }

    /// L9: the one ahead disappears between the listing and the watch.
    #[test]
    fn l9_whoever_was_behind_the_only_one_holds_when_it_has_gone() {
        let mut queue = queue(&["a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"]);
        queue.remove("a-lock-0000000001");
        assert_eq!(queue.standing("b-lock-0000000002"), Standing::Held);
        assert_eq!(queue.standing("c-lock-0000000003"), Standing::ListAgain);
    }

    /// The thousandth in line remembered 999 before it, and looked for each of them when the last
    /// one had gone: as many round trips, for every release.
    #[test]
    fn who_had_many_ahead_lists_again_instead_of_looking_for_each() {
        let mut queue = queue(&["a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"]);
        assert_eq!(queue.standing("c-lock-0000000003"), wait_on("b-lock-0000000002"));
        queue.remove("b-lock-0000000002");
        assert_eq!(queue.standing("c-lock-0000000003"), Standing::ListAgain);
    }

    /// L15: a downgraded reader lost its place. It is at its writer's own number, which is ahead of
    /// those who remember only the writer.
    ///
    /// Seen to fail with `may_become` empty for writers: the second writer holds at once.
    #[test]
    fn l15_one_that_waited_for_a_writer_looks_for_its_reader() {
        let mut queue =
            queue(&["a-__WRIT__0000000001", "b-__READ__0000000002", "c-__WRIT__0000000003"]);
        queue.remove("a-__WRIT__0000000001");
        assert_eq!(queue.standing("b-__READ__0000000002"), Standing::Held, "readers go together");
        queue.remove("b-__READ__0000000002");
        assert_eq!(queue.standing("c-__WRIT__0000000003"), Standing::ListAgain, "nobody is left");
        let queue = self::queue(&["d-__READ__0000000001", "c-__WRIT__0000000003"]);
        assert_eq!(queue.standing("c-__WRIT__0000000003"), wait_on("d-__READ__0000000001"));
    }

    #[test]
    fn those_behind_an_upgradeable_reader_look_for_its_writer() {
        let names = [
            "a-upgr-__READ__0000000001",
            "b-__WRIT__0000000002",
            "c-__READ__0000000003",
            "d-upgr-__READ__0000000004",
        ];
        let mut queue = queue(&names);
        assert_eq!(queue.standing(names[2]), wait_on(names[1]));
        assert_eq!(queue.standing(names[3]), wait_on(names[1]));
        queue.remove(names[1]);
        assert_eq!(queue.standing(names[2]), Standing::ListAgain, "the first may write by now");
        assert_eq!(queue.standing(names[3]), Standing::ListAgain, "one at a time");
        queue.remove(names[0]);
        assert_eq!(queue.standing(names[3]), Standing::ListAgain);
    }

    #[test]
    fn an_upgrade_waits_for_the_readers_before_the_first_writer() {
        let names = [
            "a-upgr-__READ__0000000001",
            "b-__READ__0000000002",
            "c-upgr-__READ__0000000003",
            "d-__WRIT__0000000004",
            "e-__READ__0000000005",
            "f-__WRIT__0000000006",
        ];
        let mut queue = queue(&names);
        assert_eq!(queue.upgrade(names[0]), Upgrade::WaitOn(names[1].to_owned()));
        queue.remove(names[1]);
        assert_eq!(queue.upgrade(names[0]), Upgrade::Clear(names[3].to_owned()));
        queue.remove(names[3]);
        assert_eq!(queue.upgrade(names[0]), Upgrade::WaitOn(names[4].to_owned()), "now it holds");
        assert_eq!(queue.upgrade("x-upgr-__READ__0000000009"), Upgrade::Gone);
    }

    #[test]
    fn permits_are_counted_and_as_few_as_will_do_are_watched() {
        let names = ["a-2-permits-0000000001", "b-1-permits-0000000002", "c-1-permits-0000000003"];
        let mut queue = queue(&names);
        let standing = |queue: &WaitQueue, own: usize| match queue.standing(names[own]) {
            Standing::WaitOn(names) => names.iter().map(|name| name[..1].to_owned()).collect(),
            other => format!("{other:?}"),
        };
        for (permits, second, third) in
            [(1, "a", "b"), (2, "a", "ba"), (3, "Held", "ba"), (4, "Held", "Held")]
        {
            queue.set_permits(permits);
            assert_eq!(
                (&*standing(&queue, 1), &*standing(&queue, 2)),
                (second, third),
                "{permits}"
            );
        }
        queue.set_permits(1);
        assert_eq!(standing(&queue, 0), "", "nothing ahead can help");
        queue.set_permits(2);
        queue.remove(names[0]);
        assert_eq!(queue.standing(names[2]), Standing::Held);
    }

    fn place(name: &str) -> Place {
        queue(&[name]).places()[0].clone()
    }

    /// The same, on a server that has numbered so many nodes in this parent.
    fn numbered(names: &[&str], creates: i32) -> WaitQueue {
        let mut queue = queue(names);
        let num_children = i32::try_from(names.len()).unwrap();
        let cversion = creates.wrapping_mul(2).wrapping_sub(num_children);
        queue.set_listed(&Stat { cversion, num_children, ..Stat::default() });
        queue
    }

    /// Who gives the lock back and comes again in one transaction knows the queue, if its number says
    /// that nobody else has come since it listed it.
    ///
    /// Seen to fail with any number taken for the next one: the second holds while another is ahead.
    #[test]
    fn the_end_of_the_line_is_known_while_numbers_follow() {
        let alone = numbered(&["a-lock-0000000001"], 2).tail(&node("a-lock-0000000001")).unwrap();
        assert!(alone.is_whole_queue());
        let next = alone.with(place("b-lock-0000000002")).unwrap();
        assert_eq!(next.standing("b-lock-0000000002"), Standing::Held);
        for number in ["0000000003", "0000000001", "0000000000", "-000000001"] {
            assert_eq!(alone.with(place(&format!("b-lock-{number}"))), None, "{number}");
        }
        let after = next.tail(&node("b-lock-0000000002")).unwrap();
        assert!(after.with(place("c-lock-0000000003")).is_some(), "and so on");

        let names = ["a-lock-0000000001", "b-lock-0000000004"];
        let one = numbered(&names, 5).tail(&node(names[0])).unwrap();
        assert!(!one.is_whole_queue());
        let one = one.with(place("d-lock-0000000005")).unwrap();
        let later = next_after(&one, "d-lock-0000000005");
        assert_eq!(later, (true, vec![Standing::Held]), "behind the only one");

        let names = [names[0], names[1], "c-lock-0000000005", "x-lock-0000000006"];
        let many = numbered(&names, 7).tail(&node(names[0])).unwrap();
        let many = many.with(place("d-lock-0000000007")).unwrap();
        assert_eq!(many.standing("d-lock-0000000007"), wait_on("x-lock-0000000006"));
        let later = next_after(&many, "d-lock-0000000007");
        assert_eq!(later, (false, vec![Standing::ListAgain]), "there may be more");
        assert!(!many.vouches_for(Zxid(9)), "nothing is known of the lock's own node");
    }

    #[test]
    fn a_line_that_has_moved_tells_nothing_of_its_end() {
        let mut queue = numbered(&["a-lock-0000000001", "b-lock-0000000002"], 3);
        assert!(queue.tail(&node("b-lock-0000000002")).is_some());
        queue.remove("a-lock-0000000001");
        assert_eq!(queue.standing("b-lock-0000000002"), Standing::Held);
        assert_eq!(queue.tail(&node("b-lock-0000000002")), None);
    }

    /// A name with a number that no server gave it; one that came last and has left; numbers that are
    /// used up; a server that counts in another way.
    #[test]
    fn the_end_is_known_only_if_the_last_in_line_was_the_last_to_come() {
        for (last, creates) in [
            ("x-lock-0000000009", 6),
            ("x-lock-0000000009", 11),
            ("x-lock-2147483647", i32::MIN),
            ("x-lock-0000000009", 0),
        ] {
            let names = ["a-lock-0000000004", last];
            assert_eq!(numbered(&names, creates).tail(&node(names[0])), None, "{last}, {creates}");
        }
        let late = "a-lock-2000000000";
        assert!(
            numbered(&[late], 2_000_000_001).tail(&node(late)).is_some(),
            "the count overflows earlier"
        );
    }

    /// L23: a foreign child broke the queue. Ours names it and refuses.
    ///
    /// Seen to fail as `l23_a_foreign_child_is_refused_and_named` of the contract.
    #[test]
    fn l23_foreign_names_are_refused_and_named() {
        let names = ["a-lock-0000000001", "x__lock__0000000000", "config"];
        let names = names.map(str::to_owned).to_vec();
        let foreign = WaitQueue::read(names, Profile::Curator, &[Kind::Exclusive]).unwrap_err();
        assert_eq!(foreign.0, ["config", "x__lock__0000000000"]);
    }
}
