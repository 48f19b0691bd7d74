//! Followers: the leader's tree with a delay, and watches of their own.

use proptest::collection::vec;
use proptest::prelude::*;

use super::random::{Step, any_step};
use super::*;

/// A leader and a follower, with the same clients connected to both.
struct Pair {
    leader: World,
    follower: World,
    clients: Vec<Client>,
    /// The watch events of each server.
    told: [Vec<(ConnectionId, Zxid, WatchEvent)>; 2],
}

impl Pair {
    fn new() -> Self {
        let (mut leader, follower) = (World::new(), World::new());
        leader.server.lead();
        Self { leader, follower, clients: Vec::new(), told: Default::default() }
    }

    fn connect(&mut self) -> Client {
        let client = self.leader.client();
        self.follower.server.connected(client.connection, Some(IpAddr::from([10, 0, 0, 1])));
        self.follower.server.attach(client.connection, client.session);
        self.follower.greeted.push(client.connection);
        self.clients.push(client.clone());
        client
    }

    /// Sends a write to the leader, and everything else to both.
    fn send(&mut self, client: &Client, request: &Request) {
        self.leader.send(client, 1, request);
        if !request.op().is_write() {
            self.follower.send(client, 1, request);
        }
    }

    fn drop(&mut self, client: &Client) {
        self.leader.server.disconnected(client.connection);
        self.follower.server.disconnected(client.connection);
    }

    /// The follower applies what the leader has done, and closes the connections that the leader has closed.
    fn follow(&mut self) {
        if let Some(transactions) = self.leader.server.take_transactions() {
            self.follower.server.follow(&transactions);
        }
        self.follower.collect();
        let mut closed = Vec::new();
        for (world, told) in [&mut self.leader, &mut self.follower].into_iter().zip(&mut self.told)
        {
            for (connection, received) in world.inbox.drain(..) {
                match received {
                    Received::Event(zxid, event) => told.push((connection, zxid, event)),
                    Received::Closed(_) => closed.push(connection),
                    Received::Welcome(_) | Received::Reply(..) => {}
                }
            }
        }
        // The leader may have closed one before a later transaction of the same turn.
        for told in &mut self.told {
            told.retain(|(connection, ..)| !closed.contains(connection));
        }
        for connection in closed {
            self.follower.server.disconnected(connection);
            self.clients.retain(|client| client.connection != connection);
        }
    }

    fn take(&mut self, step: Step) {
        let chosen = |who: usize| Some(self.clients.get(who % self.clients.len().max(1))?.clone());
        match step {
            Step::Connect => drop(self.connect()),
            Step::Wait(seconds) => self.leader.pass(Duration::from_secs(seconds)),
            Step::Drop(who) => {
                if let Some(client) = chosen(who) {
                    self.drop(&client);
                    self.clients.retain(|other| other.connection != client.connection);
                }
            }
            Step::Ask(who, request) => {
                if let Some(client) = chosen(who) {
                    self.send(&client, &request);
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]

    #[test]
    fn a_follower_has_the_leaders_tree_and_tells_the_same_watches(
        steps in vec(any_step(), 0..60),
    ) {
        let mut pair = Pair::new();
        pair.connect();
        pair.follow();
        for step in steps {
            pair.take(step);
            pair.follow();
        }
        let (leader, follower) = (&pair.leader.server, &pair.follower.server);
        prop_assert_eq!(leader.tree.sorted(), follower.tree.sorted());
        prop_assert_eq!(leader.last_zxid, follower.last_zxid);
        let [leader, follower] = pair.told;
        prop_assert_eq!(leader, follower);
    }

    /// Whatever the delay and the grouping, the follower reaches the leader's state.
    #[test]
    fn a_follower_that_lagged_catches_up(steps in vec(any_step(), 0..60), last in 0..60_usize) {
        let mut pair = Pair::new();
        pair.connect();
        let mut waiting = Vec::new();
        for (number, step) in steps.into_iter().enumerate() {
            pair.take(step);
            waiting.extend(pair.leader.server.take_transactions());
            if number >= last {
                waiting.drain(..).for_each(|all| pair.follower.server.follow(&all));
            }
        }
        waiting.extend(pair.leader.server.take_transactions());
        waiting.iter().for_each(|all| pair.follower.server.follow(all));
        let (leader, follower) = (&pair.leader.server, &pair.follower.server);
        prop_assert_eq!(leader.tree.sorted(), follower.tree.sorted());
        prop_assert_eq!(leader.last_zxid, follower.last_zxid);
        prop_assert_eq!(leader.tree.ephemeral_count(), follower.tree.ephemeral_count());
        prop_assert_eq!(leader.tree.weight(), follower.tree.weight());
    }
}

#[test]
fn a_follower_that_is_behind_refuses_those_who_have_seen_more() {
    let mut pair = Pair::new();
    let client = pair.connect();
    pair.send(&client, &create("/a", CreateMode::Persistent));
    let seen = pair.leader.server.last_zxid;
    let shows = |last_zxid_seen| {
        let mut frame = BytesMut::new();
        ConnectRequest { last_zxid_seen, ..client.resumes() }.encode(&mut frame);
        frame.freeze()
    };

    let connection = pair.follower.open();
    assert!(!pair.follower.server.admits(connection, shows(seen)));
    pair.follower.collect();
    let refused = CloseReason::ClientAhead { client: seen, server: Zxid(0) };
    assert_eq!(pair.follower.next(connection), Some(Received::Closed(refused)));

    pair.follow();
    let connection = pair.follower.open();
    assert!(pair.follower.server.admits(connection, shows(seen)));
    assert!(!pair.follower.server.admits(connection, Bytes::from_static(b"no handshake")));
}

#[test]
fn what_came_to_nothing_moves_a_follower_too() {
    let mut pair = Pair::new();
    let client = pair.connect();
    pair.send(&client, &delete("/missing", -1));
    pair.follow();
    assert_eq!(pair.follower.server.last_zxid, pair.leader.server.last_zxid);
    assert!(pair.leader.server.take_transactions().is_none());
}
