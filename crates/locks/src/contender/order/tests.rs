//! Tests of the order: holders, waiters, and the known end of a queue.

use super::upgrade::Upgrade;
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

/// Whether the contender is next, and its standing after each of the nodes that it waits for is gone.
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
/// Fails with the names sorted as text: another contender holds.
#[test]
fn l11_overflowed_numbers_have_one_order() {
    let queue = queue(&["a-lock--000000001", "b-lock--000000002", "c-lock-0000000000"]);
    assert_eq!(queue.standing("b-lock--000000002"), Standing::Held);
    assert_eq!(queue.standing("a-lock--000000001"), wait_on("b-lock--000000002"));
    assert_eq!(queue.standing("c-lock-0000000000"), wait_on("a-lock--000000001"));
}

/// The last contender entered after an upgrade, but before an earlier contender had minted its
/// token. So its own creation is older than that token.
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
    assert_eq!(vouches(3, 3, 9), (true, true), "no contender overtakes");
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

/// L9: the contender ahead disappears between the listing and the watch.
#[test]
fn l9_whoever_was_behind_the_only_one_holds_when_it_has_gone() {
    let mut queue = queue(&["a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"]);
    queue.remove("a-lock-0000000001");
    assert_eq!(queue.standing("b-lock-0000000002"), Standing::Held);
    assert_eq!(queue.standing("c-lock-0000000003"), Standing::ListAgain);
}

/// Symptom: the thousandth contender remembered the 999 ahead of it, and read each of their nodes when the last
/// one was gone, which cost as many round trips for every release.
#[test]
fn who_had_many_ahead_lists_again_instead_of_looking_for_each() {
    let mut queue = queue(&["a-lock-0000000001", "b-lock-0000000002", "c-lock-0000000003"]);
    assert_eq!(queue.standing("c-lock-0000000003"), wait_on("b-lock-0000000002"));
    queue.remove("b-lock-0000000002");
    assert_eq!(queue.standing("c-lock-0000000003"), Standing::ListAgain);
}

/// L15: a downgraded reader lost its place. It has the number of its writer, which is ahead of
/// contenders that remember only the writer.
///
/// Fails with `may_become` empty for writers: the second writer holds at once.
#[test]
fn l15_one_that_waited_for_a_writer_looks_for_its_reader() {
    let mut queue =
        queue(&["a-__WRIT__0000000001", "b-__READ__0000000002", "c-__WRIT__0000000003"]);
    queue.remove("a-__WRIT__0000000001");
    assert_eq!(queue.standing("b-__READ__0000000002"), Standing::Held, "readers go together");
    queue.remove("b-__READ__0000000002");
    assert_eq!(queue.standing("c-__WRIT__0000000003"), Standing::ListAgain, "no contender is left");
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
        assert_eq!((&*standing(&queue, 1), &*standing(&queue, 2)), (second, third), "{permits}");
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

/// The same, on a server that has numbered this many nodes in the parent.
fn numbered(names: &[&str], creates: i32) -> WaitQueue {
    let mut queue = queue(names);
    let num_children = i32::try_from(names.len()).unwrap();
    let cversion = creates.wrapping_mul(2).wrapping_sub(num_children);
    queue.set_listed(&Stat { cversion, num_children, ..Stat::default() });
    queue
}

/// A holder that releases the lock and enters again in one transaction knows the queue, if its number shows
/// that no other contender has entered since the listing.
///
/// Fails if any number counts as the next one: the second contender holds while another one is ahead.
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

/// Cases: a name whose number is not from a server; a contender that came last and has left; numbers that are
/// used up; a server that counts differently.
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

/// L23: a foreign child broke the queue. Lockkeeper refuses the queue and names the child.
///
/// Fails like `l23_a_foreign_child_is_refused_and_named` of the contract tests.
#[test]
fn l23_foreign_names_are_refused_and_named() {
    let names = ["a-lock-0000000001", "x__lock__0000000000", "config"];
    let names = names.map(str::to_owned).to_vec();
    let foreign = WaitQueue::read(names, Profile::Curator, &[Kind::Exclusive]).unwrap_err();
    assert_eq!(foreign.0, ["config", "x__lock__0000000000"]);
}

#[test]
fn those_who_hold_are_those_whose_standing_says_so() {
    let markers =
        ["-lock-", "-__READ__", "-__WRIT__", "-upgr-__READ__", "-1-permits-", "-3-permits-"];
    for seed in 0..1_000 {
        let mut random = fastrand::Rng::with_seed(seed);
        // Often of one kind, as in a lock.
        let kinds = random.usize(1..=markers.len());
        let names: Vec<String> = (0..random.usize(0..12))
            .map(|number| format!("x{}{number:010}", markers[random.usize(..kinds)]))
            .collect();
        let mut queue = queue(&names.iter().map(String::as_str).collect::<Vec<_>>());
        queue.set_permits(random.u32(0..6));
        let standing: Vec<bool> =
            names.iter().map(|name| queue.standing(name) == Standing::Held).collect();
        assert_eq!(queue.holders(), standing, "seed {seed}: {names:?}");
    }
}
