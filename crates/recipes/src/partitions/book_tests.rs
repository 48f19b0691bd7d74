//! The books of several members, each of which sees changes at random times.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::partitions::shares::tests::shares;

const MEMBERS: [&str; 4] = ["a", "b", "c", "d"];
const ITEMS: usize = 12;
const GRACE: Duration = Duration::from_secs(10);

fn at(seconds: u64) -> Instant {
    Instant::from_start(Duration::from_secs(seconds))
}

fn items() -> Vec<String> {
    let mut items: Vec<_> = (0..ITEMS).map(|n| format!("item-{n}")).collect();
    items.sort();
    items
}

fn book(me: &str, settle: u64) -> Book {
    Book::new(me, &items(), GRACE, Duration::from_secs(settle))
}

/// A member, and its orders that have not been carried out.
struct TestMember {
    book: Book,
    session: SessionId,
    doing: Vec<Order>,
    /// The items whose nodes it watches.
    watches: Vec<ItemLife>,
    /// The items that it holds.
    held: BTreeMap<usize, ItemLife>,
}

struct World {
    members: Vec<TestMember>,
    /// The session of each node.
    nodes: BTreeMap<usize, SessionId>,
    now: Instant,
}

impl World {
    fn new() -> Self {
        let member = |(n, id): (usize, &&str)| TestMember {
            book: book(id, 0),
            session: SessionId(n as i64 + 1),
            doing: Vec::new(),
            watches: Vec::new(),
            held: BTreeMap::new(),
        };
        let members = MEMBERS.iter().enumerate().map(member).collect();
        Self { members, nodes: BTreeMap::new(), now: at(0) }
    }

    fn view(&mut self, of: usize, present: &[bool]) {
        let sharers = MEMBERS.iter().zip(present).filter(|(_, is_there)| **is_there);
        let shares = shares(&sharers.map(|(id, _)| (*id, 1)).collect::<Vec<_>>());
        self.members[of].book.view(shares, present[of], self.now);
        self.collect(of);
    }

    fn collect(&mut self, of: usize) {
        let orders = self.members[of].book.take_orders();
        self.members[of].doing.extend(orders);
    }

    fn delete(&mut self, of: usize, index: usize) {
        if self.nodes.get(&index) == Some(&self.members[of].session) {
            self.nodes.remove(&index);
        }
        self.members[of].held.remove(&index);
    }

    /// Carries out an order of a member; `false` if none is left.
    fn act(&mut self, of: usize, chance: usize) -> bool {
        let now = self.now;
        let member = &mut self.members[of];
        let gone = |ticket: &ItemLife| !self.nodes.contains_key(&ticket.index);
        if let Some(found) = member.watches.iter().position(gone) {
            let ticket = member.watches.swap_remove(found);
            member.book.gone(ticket, now);
            self.collect(of);
            return true;
        }
        if member.doing.is_empty() {
            return false;
        }
        let order = member.doing.remove(chance % member.doing.len());
        match order {
            Order::Look(ticket) => {
                let by = self.nodes.get(&ticket.index).copied();
                if member.book.looked(ticket, by, now) {
                    member.watches.push(ticket);
                }
            }
            Order::Create(ticket) => match self.nodes.get(&ticket.index) {
                Some(_) => member.book.taken(ticket),
                None => {
                    self.nodes.insert(ticket.index, member.session);
                    member.watches.push(ticket);
                    match member.book.made(ticket) {
                        true => drop(member.held.insert(ticket.index, ticket)),
                        false => self.delete(of, ticket.index),
                    }
                }
            },
            Order::Move(..) => {}
            Order::End(ticket) => {
                member.book.ended(ticket, Some(now + Duration::from_secs(1)));
                member.held.remove(&ticket.index);
            }
            Order::GiveBack(ticket) => self.delete(of, ticket.index),
            Order::Lost(ticket) => drop(member.held.remove(&ticket.index)),
        }
        self.collect(of);
        true
    }

    /// A holder gives an item back, if it has any.
    fn give_back(&mut self, of: usize, chance: usize) {
        let member = &self.members[of];
        let held: Vec<_> = member.held.values().copied().collect();
        if let Some(ticket) = held.get(chance % held.len().max(1)) {
            self.delete(of, ticket.index);
            let now = self.now;
            self.members[of].book.returned(*ticket, now);
            self.collect(of);
        }
    }

    fn expire(&mut self, of: usize) {
        let member = &mut self.members[of];
        self.nodes.retain(|_, session| *session != member.session);
        member.session = SessionId(member.session.0 + MEMBERS.len() as i64);
        member.book.session_ended(self.now);
        member.doing.clear();
        member.watches.clear();
        member.held.clear();
        self.collect(of);
    }

    fn pass(&mut self, time: Duration) {
        self.now = self.now + time;
        for of in 0..MEMBERS.len() {
            self.members[of].book.tick(self.now);
            self.collect(of);
        }
    }

    fn check(&self) {
        for (of, member) in self.members.iter().enumerate() {
            for index in member.held.keys() {
                assert_eq!(
                    self.nodes.get(index),
                    Some(&member.session),
                    "the node of {of} is missing"
                );
            }
        }
    }

    /// Carries out all orders.
    fn settle(&mut self) {
        for _ in 0..100 {
            while (0..MEMBERS.len()).any(|of| self.act(of, 0)) {
                self.check();
            }
            self.pass(Duration::from_secs(1));
        }
    }
}

proptest! {
    /// For every sequence of events: the holder of an item has its node, and in the end every item is with its
    /// owner.
    #[test]
    fn every_item_comes_to_its_owner(steps in prop::collection::vec((0..10_u8, 0..4_usize, any::<usize>()), 0..300)) {
        let mut world = World::new();
        for (step, of, chance) in steps {
            match step {
                0 => {
                    let present = [0, 1, 2, 3].map(|n| n == of || chance >> n & 1 == 1);
                    world.view(of, &present);
                }
                1 => world.give_back(of, chance),
                2 if chance % 4 == 0 => world.expire(of),
                3 => world.pass(Duration::from_millis(chance as u64 % 8000)),
                _ => drop(world.act(of, chance)),
            }
            world.check();
        }

        for of in 0..MEMBERS.len() {
            world.view(of, &[true; 4]);
        }
        world.settle();
        let all = shares(&MEMBERS.map(|id| (id, 1)));
        for (of, member) in world.members.iter().enumerate() {
            let owned: Vec<_> = member.book.owned().collect();
            let items = items();
            let mine: Vec<_> = items.iter().filter(|item| all.owner(digest(item.as_bytes())) == Some(MEMBERS[of])).collect();
            prop_assert_eq!(owned, mine);
            prop_assert_eq!(member.book.waited().count(), 0);
        }

        for of in 0..MEMBERS.len() {
            world.members[of].book.leave(world.now);
            world.collect(of);
        }
        world.settle();
        prop_assert!(world.nodes.is_empty());
        prop_assert!(world.members.iter().all(|member| member.book.is_clear()));
    }
}

/// A book that holds all items, and one of its orders.
fn holding_all(settle: u64) -> Book {
    let mut book = book("a", settle);
    book.view(shares(&[("a", 1)]), true, at(0));
    book.tick(at(settle));
    for order in book.take_orders() {
        let Order::Look(ticket) = order else { panic!("{order:?}") };
        book.looked(ticket, None, at(settle));
    }
    for order in book.take_orders() {
        let Order::Create(ticket) = order else { panic!("{order:?}") };
        assert!(book.made(ticket));
    }
    assert_eq!(book.owned().count(), ITEMS);
    book
}

#[test]
fn an_item_that_turns_back_stays() {
    let mut book = holding_all(0);
    book.view(shares(&[("a", 1), ("b", 1)]), true, at(1));
    let orders = book.take_orders();
    let tells = |order: &Order| matches!(order, Order::Move(_, Some(until)) if *until == at(11));
    assert!(!orders.is_empty() && orders.len() < ITEMS && orders.iter().all(tells));
    book.view(shares(&[("a", 1)]), true, at(10));
    let back = book.take_orders();
    assert_eq!(back.len(), orders.len());
    assert!(back.iter().all(|order| matches!(order, Order::Move(_, None))));
    book.tick(at(100));
    assert_eq!((book.owned().count(), book.take_orders()), (ITEMS, vec![]));
}

#[test]
fn a_grace_that_is_over_ends_an_item_and_then_deletes_it() {
    let mut book = holding_all(0);
    book.view(shares(&[("b", 1)]), true, at(1));
    assert_eq!(book.take_orders().len(), ITEMS);
    book.tick(at(10));
    assert_eq!((book.take_orders(), book.due()), (vec![], Some(at(11))));
    book.tick(at(11));
    for order in book.take_orders() {
        let Order::End(ticket) = order else { panic!("{order:?}") };
        book.ended(ticket, Some(at(15)));
    }
    book.tick(at(14));
    assert_eq!(book.take_orders(), []);
    assert!(!book.is_clear());
    book.tick(at(15));
    let orders = book.take_orders();
    assert!(orders.len() == ITEMS && matches!(orders[0], Order::GiveBack(_)));
}

#[test]
fn views_are_acted_on_when_they_are_quiet() {
    let mut book = holding_all(5);
    let with_b = || shares(&[("a", 1), ("b", 1)]);
    book.view(with_b(), true, at(10));
    book.tick(at(14));
    assert_eq!(book.take_orders(), []);
    // It came back in time.
    book.view(shares(&[("a", 1)]), true, at(14));
    book.tick(at(30));
    assert_eq!(book.take_orders(), []);
    book.view(with_b(), true, at(40));
    book.tick(at(45));
    assert!(!book.take_orders().is_empty());
}

#[test]
fn a_group_that_never_settles_is_not_waited_for_forever() {
    let mut book = holding_all(5);
    let mut acted = None;
    for second in 10..100 {
        let other = if second % 2 == 0 { "b" } else { "c" };
        book.view(shares(&[("a", 1), (other, 1)]), true, at(second));
        book.tick(at(second));
        if acted.is_none() && !book.take_orders().is_empty() {
            acted = Some(second);
        }
    }
    assert_eq!(acted, Some(60));
}

/// A member that loses items with its session does not change the group.
#[test]
fn a_member_that_comes_back_does_not_settle() {
    let mut book = holding_all(5);
    book.session_ended(at(20));
    assert_eq!(book.take_orders(), []);
    book.view(shares(&[("a", 1)]), true, at(21));
    assert_eq!(book.take_orders().len(), ITEMS);
}
