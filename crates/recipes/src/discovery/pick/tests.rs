//! Counts picks, with a clock that the tests set.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use lockkeeper_client::Instant;
use proptest::prelude::*;

use super::balancer::{Balancer, Ticket};
use super::health::CallVerdict;
use super::{Candidate, Ejection, InstanceHealth, Pick, PickError};

#[derive(Clone, Debug)]
struct Node {
    id: String,
    weight: u32,
    zone: Option<&'static str>,
    address: u32,
}

impl Candidate for Node {
    fn id(&self) -> &str {
        &self.id
    }

    fn weight(&self) -> u32 {
        self.weight
    }

    fn zone(&self) -> Option<&str> {
        self.zone
    }

    fn is_same_endpoint(&self, earlier: &Self) -> bool {
        self.address == earlier.address
    }
}

fn node(number: usize, weight: u32) -> Node {
    Node { id: format!("web-{number:03}"), weight, zone: None, address: 0 }
}

fn nodes(weights: &[u32]) -> Vec<Arc<Node>> {
    let nodes = weights.iter().enumerate().map(|(number, weight)| Arc::new(node(number, *weight)));
    nodes.collect()
}

fn at(millis: u64) -> Instant {
    Instant::from_start(Duration::from_millis(millis))
}

const ALL_WAYS: [Pick<'_>; 4] =
    [Pick::RoundRobin, Pick::Weighted, Pick::PowerOfTwo, Pick::Key(b"user-7")];

struct Scene {
    balancer: Balancer<Node>,
}

impl Scene {
    fn new(weights: &[u32]) -> Self {
        Self::with(Ejection::default(), None, nodes(weights))
    }

    fn with(ejection: Ejection, zone: Option<&str>, nodes: Vec<Arc<Node>>) -> Self {
        let mut balancer = Balancer::new(ejection, zone.map(str::to_owned), 42);
        balancer.update(nodes, at(0));
        Self { balancer }
    }

    fn begin(&mut self, how: Pick<'_>, now: u64) -> (String, Ticket) {
        let (node, ticket) = self.balancer.pick(how, at(now)).expect("an instance");
        (node.id.clone(), ticket)
    }

    /// A call that is answered at once.
    fn call(&mut self, how: Pick<'_>) -> String {
        let (id, ticket) = self.begin(how, 0);
        self.balancer.end(ticket, CallVerdict::Good, at(0));
        id
    }

    fn count(&mut self, how: Pick<'_>, picks: u32) -> BTreeMap<String, u32> {
        let mut counts = BTreeMap::new();
        for _ in 0..picks {
            *counts.entry(self.call(how)).or_default() += 1;
        }
        counts
    }

    /// Picks of two, each call after the one before and a pause: the ids. `took` returns how long a call takes,
    /// given its number and the id.
    fn one_by_one(
        &mut self,
        calls: usize,
        pause: Duration,
        mut took: impl FnMut(usize, &str) -> Duration,
    ) -> Vec<String> {
        let mut now = Duration::ZERO;
        let call = |call| {
            let began = Instant::from_start(now);
            let (node, ticket) = self.balancer.pick(Pick::PowerOfTwo, began).expect("an instance");
            now += took(call, &node.id);
            self.balancer.end(ticket, CallVerdict::Good, Instant::from_start(now));
            now += pause;
            node.id.clone()
        };
        (0..calls).map(call).collect()
    }

    /// Fails every call to this instance, in turn, until one has failed so many times.
    fn fail(&mut self, id: &str, times: u32, now: u64) {
        let mut left = times;
        for _ in 0..1_000 {
            if left == 0 {
                return;
            }
            let (picked, ticket) = self.begin(Pick::RoundRobin, now);
            let failed = picked == id;
            left -= u32::from(failed);
            let verdict = if failed { CallVerdict::Failed } else { CallVerdict::Good };
            self.balancer.end(ticket, verdict, at(now));
        }
        panic!("{id} is never picked");
    }

    fn health(&self, id: &str) -> InstanceHealth {
        let mut known = self.balancer.show().into_iter();
        known.find(|known| known.instance.id == id).expect("the instance").health
    }

    fn out(&self) -> usize {
        let known = self.balancer.show().into_iter();
        let out = known
            .filter(|known| known.instance.weight > 0 && known.health != InstanceHealth::Healthy);
        out.count()
    }
}

fn calls_to(id: &str, picked: &[String]) -> usize {
    picked.iter().filter(|picked| *picked == id).count()
}

fn millis(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

#[test]
fn nothing_to_pick_has_a_name() {
    let mut none = Scene::new(&[]);
    let mut drained = Scene::new(&[0, 0]);
    for how in ALL_WAYS {
        assert_eq!(none.balancer.pick(how, at(0)).unwrap_err(), PickError::NoInstance);
        let error = drained.balancer.pick(how, at(0)).unwrap_err();
        assert_eq!(error, PickError::AllDrained { instances: 2 });
    }
}

#[test]
fn round_robin_takes_each_in_turn() {
    let mut scene = Scene::new(&[1, 7, 1]);
    let first: Vec<_> = (0..3).map(|_| scene.call(Pick::RoundRobin)).collect();
    let second: Vec<_> = (0..3).map(|_| scene.call(Pick::RoundRobin)).collect();
    assert_eq!(first, second);
    assert_eq!(first.iter().collect::<BTreeSet<_>>().len(), 3);
}

#[test]
fn clients_begin_in_different_places() {
    let firsts = (0..200).map(|seed| {
        let mut balancer = Balancer::new(Ejection::default(), None, seed);
        balancer.update(nodes(&[1; 10]), at(0));
        balancer.pick(Pick::RoundRobin, at(0)).unwrap().0.id.clone()
    });
    assert_eq!(firsts.collect::<BTreeSet<_>>().len(), 10);
}

/// The next one in turn stays the same when others come and go; when it leaves, the one after it is next.
#[test]
fn turns_continue_when_instances_change() {
    let mut scene = Scene::new(&[1; 6]);
    while scene.call(Pick::RoundRobin) != "web-002" {}

    let without = |gone: &[usize]| -> Vec<_> {
        (0..6).filter(|n| !gone.contains(n)).map(|n| Arc::new(node(n, 1))).collect()
    };
    scene.balancer.update(without(&[0, 1]), at(0));
    assert_eq!(scene.call(Pick::RoundRobin), "web-003");
    scene.balancer.update(without(&[4]), at(0));
    assert_eq!(scene.call(Pick::RoundRobin), "web-005");
    assert_eq!(scene.call(Pick::RoundRobin), "web-000");
}

#[test]
fn weighted_picks_are_not_in_bursts() {
    let mut scene = Scene::new(&[5, 1, 1]);
    let picks: Vec<_> = (0..70_000).map(|_| scene.call(Pick::Weighted)).collect();
    let longest = picks.chunk_by(|a, b| a == b).map(<[_]>::len).max();
    assert!(longest < Some(5), "{longest:?} in a row");
}

#[test]
fn power_of_two_keeps_to_weights_while_all_are_equal() {
    let weights = [1, 2, 4, 8, 0];
    let mut scene = Scene::new(&weights);
    let counts = scene.count(Pick::PowerOfTwo, 15_000);
    for (number, weight) in weights.iter().enumerate() {
        let count = f64::from(counts.get(&node(number, 0).id).copied().unwrap_or_default());
        let expected = f64::from(*weight) * 1_000.0;
        assert!((count - expected).abs() <= 5.0 * expected.sqrt(), "{count} of {expected}");
    }
}

/// The calls that are kept open balance the load: each instance has as many as its weight says.
#[test]
fn power_of_two_levels_calls_in_flight() {
    let mut scene = Scene::new(&[1, 1, 1, 1, 4]);
    for _ in 0..800 {
        let _held_open = scene.begin(Pick::PowerOfTwo, 0);
    }
    for known in scene.balancer.show() {
        let expected = 100 * known.instance.weight;
        let range = expected * 7 / 10..=expected * 13 / 10;
        assert!(range.contains(&known.in_flight), "{known:?}");
    }
}

/// Of ten instances, one takes ten times as long. The calls are sequential, so that only latency matters.
#[test]
fn power_of_two_avoids_the_slow_and_tries_them_again() {
    let took = |_, id: &str| millis(if id == "web-004" { 100 } else { 10 });
    let picked = Scene::new(&[1; 10]).one_by_one(4_000, Duration::ZERO, took);
    let slow = calls_to("web-004", &picked);
    assert!(slow < 100, "{slow} of 4,000 calls");
    assert!(calls_to("web-004", &picked[2_000..]) > 0, "never tried again");
}

/// Calls to one instance take ten times as long at the beginning. A slow first call, which is common, has no
/// effect; after a few, it has its share again once it was tried some times more.
#[test]
fn power_of_two_forgives_a_slow_start() {
    for (slow_calls, settling) in [(1, 0), (3, 5_000)] {
        let mut calls = 0;
        let took = |_, id: &str| {
            calls += u32::from(id == "web-001");
            let is_slow = id == "web-001" && calls <= slow_calls;
            Duration::from_micros(if is_slow { 1_000 } else { 100 })
        };
        let picked = Scene::new(&[1; 3]).one_by_one(settling + 3_000, Duration::ZERO, took);
        let counted = calls_to("web-001", &picked[settling..]);
        assert!((800..=1_200).contains(&counted), "{counted} of 3,000, after {slow_calls} slow");
    }
}

/// One call in the middle takes a hundred times as long, as if a program was paused for a moment. Its instance has
/// its share again after some seconds, or some dozens of calls if there are few.
///
/// Fails with an average that always covers 10 s: 6 of 300.
#[test]
fn power_of_two_forgives_a_slow_call() {
    for (pause, away) in [(0, 400), (1_000, 100)] {
        let mut slow_at = None;
        let took = |call, id: &str| {
            let is_slow = call >= 200 && slow_at.is_none() && id == "web-001";
            slow_at = slow_at.or(is_slow.then_some(call));
            millis(if is_slow { 1_000 } else { 10 })
        };
        let picked = Scene::new(&[1; 3]).one_by_one(600 + away, millis(pause), took);

        let later = slow_at.expect("one is slow") + away;
        let counted = calls_to("web-001", &picked[later..later + 300]);
        assert!((70..=130).contains(&counted), "{counted} of 300, {away} calls after the slow one");
    }
}

/// With a call each second, an instance that takes ten times as long is still recognised.
#[test]
fn power_of_two_avoids_the_slow_where_calls_are_few() {
    let took = |_, id: &str| millis(if id == "web-001" { 100 } else { 10 });
    let picked = Scene::new(&[1; 3]).one_by_one(600, millis(1_000), took);
    let slow = calls_to("web-001", &picked);
    assert!(slow < 60, "{slow} of 600 calls");
}

/// Differences of a few percent are ignored: the calls do not all go to the fastest.
#[test]
fn power_of_two_takes_no_notice_of_small_differences() {
    let number = |id: &str| id.trim_start_matches("web-").parse::<u64>().unwrap();
    let took = |_, id: &str| Duration::from_micros(100 + number(id));
    let picked = Scene::new(&[1; 10]).one_by_one(10_000, Duration::ZERO, took);
    let counts = [0, 1, 2, 3, 4, 5, 6, 7, 8, 9].map(|n| calls_to(&node(n, 1).id, &picked));
    assert!(counts.iter().all(|count| (500..=1_500).contains(count)), "{counts:?}");
}

/// Failures come fast. If the cap prevents the ejection of a failing instance, it must not look idle.
#[test]
fn power_of_two_is_not_attracted_by_failures() {
    let mut scene = Scene::with(Ejection::never(), None, nodes(&[1; 10]));
    let (mut now, mut failed) = (0, 0);
    let mut open = Vec::new();
    for _ in 0..1_000 {
        now += 1;
        let (id, ticket) = scene.begin(Pick::PowerOfTwo, now);
        if id == "web-004" {
            failed += 1;
            scene.balancer.end(ticket, CallVerdict::Failed, at(now));
        } else {
            open.push(ticket);
        }
        if open.len() > 20 {
            scene.balancer.end(open.remove(0), CallVerdict::Good, at(now));
        }
    }
    assert!(failed < 50, "{failed} of 1,000 calls went to the one that fails");
}

/// The same for an instance that answered before: its latency must not fade while it fails.
///
/// Fails when a failure does not renew the latency: 1,839 of 3,000 calls.
#[test]
fn power_of_two_is_not_attracted_by_failures_after_answers() {
    let mut scene = Scene::with(Ejection::never(), None, nodes(&[1; 3]));
    let mut failed = 0;
    for call in 0..3_500 {
        let began = call * 20;
        let (id, ticket) = scene.begin(Pick::PowerOfTwo, began);
        let (verdict, took) = match call >= 500 && id == "web-001" {
            true => (CallVerdict::Failed, 1),
            false => (CallVerdict::Good, 10),
        };
        failed += u32::from(verdict == CallVerdict::Failed);
        scene.balancer.end(ticket, verdict, at(began + took));
    }
    assert!(failed < 200, "{failed} of 3,000 calls went to the one that fails");
}

/// An instance that failed its first call has its share as soon as it was tried again, even if no other has a call
/// in flight.
///
/// Fails when picks that ignore latency do not ignore failures: 0 of 3,000 calls.
#[test]
fn power_of_two_forgives_a_first_failure() {
    let mut scene = Scene::new(&[1; 3]);
    let (mut calls, mut later) = (0, 0);
    for call in 0..4_000 {
        let began = call * 20;
        let (id, ticket) = scene.begin(Pick::PowerOfTwo, began);
        calls += u32::from(id == "web-001");
        later += u32::from(id == "web-001" && call >= 1_000);
        let verdict = match id == "web-001" && calls == 1 {
            true => CallVerdict::Failed,
            false => CallVerdict::Good,
        };
        scene.balancer.end(ticket, verdict, at(began + 10));
    }
    assert!((800..=1_200).contains(&later), "{later} of 3,000 calls");
}

#[test]
fn own_zone_first() {
    let zones = [Some("a"), Some("b"), Some("a"), None];
    let all = |weights: [u32; 4]| -> Vec<_> {
        let placed = zones.iter().zip(nodes(&weights));
        let node = placed.map(|(zone, node)| Arc::new(Node { zone: *zone, ..Node::clone(&node) }));
        node.collect()
    };
    let ejection = Ejection::default().failures(1).at_most_percent(100);
    let mut scene = Scene::with(ejection, Some("a"), all([1; 4]));
    let own = ["web-000", "web-002"];
    for how in [Pick::RoundRobin, Pick::Weighted, Pick::PowerOfTwo] {
        assert!(scene.count(how, 100).keys().eq(own), "{how:?}");
    }
    let key_owners: BTreeSet<_> =
        (0..100).map(|n: u32| scene.call(Pick::key(&n.to_string()))).collect();
    assert_eq!(key_owners.len(), 4, "keys belong to all zones");

    // Drained or ejected, it is as if the zone were empty.
    scene.balancer.update(all([0, 1, 1, 1]), at(0));
    assert!(scene.count(Pick::Weighted, 100).keys().eq(["web-002"]));
    scene.fail("web-002", 1, 0);
    assert!(scene.count(Pick::Weighted, 100).keys().eq(["web-001", "web-003"]));
    scene.balancer.update(all([0, 1, 0, 1]), at(0));
    assert!(scene.count(Pick::Weighted, 100).keys().eq(["web-001", "web-003"]));
}

/// Symptom: all instances of the own zone fail, and calls never go to the other zone. Cause: that zone had failed
/// before, its instances were due for a trial, no pick of the own zone could reach them, and they filled the cap.
#[test]
fn a_zone_that_recovered_is_there_when_the_own_one_fails() {
    let keys: Vec<_> = (0..20).map(|key| key.to_string()).collect();
    for how in [Pick::RoundRobin, Pick::Weighted, Pick::PowerOfTwo] {
        let zones = ["a", "a", "b", "b"].into_iter().zip(nodes(&[1; 4]));
        let placed = zones.map(|(zone, node)| Node { zone: Some(zone), ..Node::clone(&node) });
        let placed: Vec<_> = placed.map(Arc::new).collect();
        let ejection = Ejection::default().failures(1);
        let mut scene = Scene::with(ejection, Some("a"), placed);
        let (own, other) = (["web-000", "web-001"], ["web-002", "web-003"]);
        let mut call = |how, now, failing: &[&str]| {
            let (id, ticket) = scene.begin(how, now);
            let failed = failing.contains(&id.as_str());
            let verdict = if failed { CallVerdict::Failed } else { CallVerdict::Good };
            scene.balancer.end(ticket, verdict, at(now));
            assert!(scene.out() <= 2);
            id
        };

        // Calls by key go to all zones.
        for key in &keys {
            call(Pick::key(key), 0, &other);
        }

        // After the pause, one call to each shows that the other zone is back.
        let picked: Vec<_> = (0..1_000).map(|_| call(how, 1_000, &[])).collect();
        let counts = other.map(|id| calls_to(id, &picked));
        assert_eq!(counts, [1, 1], "{how:?}");

        for _ in 0..200 {
            call(how, 1_000, &own);
        }
        let picked: BTreeSet<_> = (0..100).map(|_| call(how, 1_000, &own)).collect();
        assert!(picked.iter().eq(other.iter()), "{how:?}: {picked:?}");
    }
}

fn owners(scene: &mut Scene, keys: u32) -> Vec<String> {
    (0..keys).map(|key| scene.call(Pick::key(&format!("user-{key}")))).collect()
}

#[test]
fn one_of_n_moves_a_share_of_the_keys_and_no_others() {
    const KEYS: u32 = 20_000;
    let mut scene = Scene::new(&[1; 100]);
    let before = owners(&mut scene, KEYS);

    let without = (0..100).filter(|n| *n != 37).map(|n| Arc::new(node(n, 1)));
    scene.balancer.update(without.collect(), at(0));
    let after = owners(&mut scene, KEYS);
    let moved = before.iter().zip(&after).filter(|(before, after)| before != after);
    assert!(moved.clone().all(|(before, _)| before == "web-037"), "only its own keys move");
    let moved = moved.count();
    assert!((140..=260).contains(&moved), "{moved} of {KEYS}, expected 200");

    scene.balancer.update(nodes(&[1; 100]), at(0));
    assert_eq!(owners(&mut scene, KEYS), before, "and they come back");
}

#[test]
fn keys_follow_weights() {
    let mut scene = Scene::new(&[1, 2, 3, 0, 4]);
    let before = owners(&mut scene, 20_000);
    for (number, weight) in [1_usize, 2, 3, 0, 4].into_iter().enumerate() {
        let id = node(number, 0).id;
        let count = before.iter().filter(|owner| **owner == id).count();
        let expected = 2_000 * weight;
        assert!(count.abs_diff(expected) <= expected / 10, "{count} of {expected}");
    }

    // A larger weight takes keys from the others, and moves none between them.
    scene.balancer.update(nodes(&[1, 2, 6, 0, 4]), at(0));
    let after = owners(&mut scene, 20_000);
    assert!(before.iter().zip(&after).all(|(old, new)| old == new || new == "web-002"));
}

#[test]
fn keys_of_an_ejected_instance_come_back() {
    let ejection = Ejection::default().failures(1);
    let mut scene = Scene::with(ejection, None, nodes(&[1; 5]));
    let before = owners(&mut scene, 1_000);
    scene.fail("web-003", 1, 0);
    let during = owners(&mut scene, 1_000);
    assert!(before.iter().zip(&during).all(|(old, new)| old == new || old == "web-003"));
    assert!(!during.contains(&"web-003".to_owned()));

    // The trial is answered.
    let (_, ticket) = (0..100)
        .map(|key: u32| scene.begin(Pick::key(&format!("user-{key}")), 2_000))
        .find(|(id, _)| id == "web-003")
        .unwrap();
    scene.balancer.end(ticket, CallVerdict::Good, at(2_000));
    assert_eq!(owners(&mut scene, 1_000), before);
}

#[test]
fn failures_in_a_row_eject_and_a_trial_decides() {
    let mut scene = Scene::new(&[1; 4]);
    scene.fail("web-001", 4, 0);
    // A good call in between: the failures are not in a row.
    scene.count(Pick::RoundRobin, 4);
    scene.fail("web-001", 4, 0);
    assert_eq!(scene.health("web-001"), InstanceHealth::Healthy);
    scene.fail("web-001", 1, 0);
    assert_eq!(scene.health("web-001"), InstanceHealth::Ejected { until: at(1_000) });

    let picked = |scene: &mut Scene, now| -> Vec<_> {
        (0..12)
            .map(|_| scene.begin(Pick::RoundRobin, now))
            .filter(|(id, _)| id == "web-001")
            .collect()
    };
    assert!(picked(&mut scene, 999).is_empty());

    // Each trial that fails doubles the pause, up to the longest.
    let mut now = 1_000;
    for pause in [2, 4, 8, 16, 32, 60, 60, 60] {
        let [(_, trial)] = picked(&mut scene, now).try_into().expect("one call decides");
        assert_eq!(scene.health("web-001"), InstanceHealth::OnTrial);
        scene.balancer.end(trial, CallVerdict::Failed, at(now));
        let until = at(now + pause * 1_000);
        assert_eq!(scene.health("web-001"), InstanceHealth::Ejected { until });
        now += pause * 1_000;
    }

    // Answered, it is back; and its pauses still grow until it was healthy for as long as the last one.
    let [(_, trial)] = picked(&mut scene, now).try_into().expect("one call decides");
    scene.balancer.end(trial, CallVerdict::Good, at(now));
    assert_eq!(picked(&mut scene, now).len(), 3);
    scene.fail("web-001", 5, now);
    let until = at(now + 60_000);
    assert_eq!(scene.health("web-001"), InstanceHealth::Ejected { until });

    now += 60_000;
    let [(_, trial)] = picked(&mut scene, now).try_into().expect("one call decides");
    scene.balancer.end(trial, CallVerdict::Good, at(now));
    now += 60_000;
    let (_, call) = picked(&mut scene, now).swap_remove(0);
    scene.balancer.end(call, CallVerdict::Good, at(now));
    scene.fail("web-001", 5, now);
    assert_eq!(scene.health("web-001"), InstanceHealth::Ejected { until: at(now + 1_000) });
}

/// A trial whose caller did not wait for the end proves nothing: another one follows.
#[test]
fn a_trial_given_up_is_repeated() {
    let mut scene = Scene::with(Ejection::default().failures(1), None, nodes(&[1; 3]));
    scene.fail("web-001", 1, 0);
    for _ in 0..3 {
        let picks: Vec<_> = (0..6).map(|_| scene.begin(Pick::RoundRobin, 1_000)).collect();
        let trials: Vec<_> = picks.into_iter().filter(|(id, _)| id == "web-001").collect();
        assert_eq!(trials.len(), 1);
        scene.balancer.end(trials[0].1, CallVerdict::GivenUp, at(1_000));
        assert_eq!(scene.health("web-001"), InstanceHealth::OnTrial);
    }
}

/// A call may last as long as a stream: it must not exclude its instance until then.
#[test]
fn a_trial_that_does_not_end_is_followed_by_another() {
    let mut scene = Scene::with(Ejection::default().failures(1), None, nodes(&[1; 3]));
    scene.fail("web-001", 1, 0);
    let mut trials = Vec::new();
    for now in [1_000, 1_999, 2_000, 2_999, 3_000] {
        let picks = (0..6).map(|_| scene.begin(Pick::RoundRobin, now));
        trials.extend(picks.filter(|(id, _)| id == "web-001").map(|(_, ticket)| (now, ticket)));
    }
    let begun: Vec<_> = trials.iter().map(|(now, _)| *now).collect();
    assert_eq!(begun, [1_000, 2_000, 3_000], "one for each pause");
    assert_eq!(scene.health("web-001"), InstanceHealth::OnTrial);

    // The first one that ends decides.
    scene.balancer.end(trials[1].1, CallVerdict::Good, at(3_000));
    assert_eq!(scene.health("web-001"), InstanceHealth::Healthy);
}

/// Calls that began before an ejection end during it, or after it: they are ignored.
#[test]
fn old_calls_do_not_count_again() {
    let mut scene = Scene::with(Ejection::default().failures(1), None, nodes(&[1; 2]));
    let calls: Vec<_> = (0..12).map(|_| scene.begin(Pick::RoundRobin, 0)).collect();
    let mut old = calls.into_iter().filter(|(id, _)| id == "web-001").map(|(_, ticket)| ticket);
    let first_pause = InstanceHealth::Ejected { until: at(1_000) };

    scene.balancer.end(old.next().unwrap(), CallVerdict::Failed, at(0));
    assert_eq!(scene.health("web-001"), first_pause);
    scene.balancer.end(old.next().unwrap(), CallVerdict::Failed, at(10));
    scene.balancer.end(old.next().unwrap(), CallVerdict::Good, at(20));
    assert_eq!(scene.health("web-001"), first_pause);

    scene.begin(Pick::RoundRobin, 1_000);
    scene.balancer.end(old.next().unwrap(), CallVerdict::Failed, at(1_000));
    assert_eq!(scene.health("web-001"), InstanceHealth::OnTrial);
}

/// All fail: half of them stay, and are called.
#[test]
fn the_cap_holds_when_all_fail() {
    for count in 1..=9 {
        let ejection = Ejection::default().failures(1);
        let mut scene = Scene::with(ejection, None, nodes(&vec![1; count]));
        for _ in 0..100 {
            let (_, ticket) = scene.begin(Pick::RoundRobin, 0);
            scene.balancer.end(ticket, CallVerdict::Failed, at(0));
            assert!(scene.out() <= count / 2);
        }
        assert_eq!(scene.out(), count / 2);
    }
}

/// Only ejected ones are left: one of these is better than none.
#[test]
fn an_ejected_instance_is_better_than_none() {
    let ejection = Ejection::default().failures(1).at_most_percent(100);
    let mut scene = Scene::with(ejection, None, nodes(&[1; 2]));
    scene.fail("web-000", 1, 0);
    scene.fail("web-001", 1, 0);
    assert_eq!(scene.out(), 2);
    for how in ALL_WAYS {
        let (_, ticket) = scene.begin(how, 0);
        scene.balancer.end(ticket, CallVerdict::Failed, at(0));
    }
    assert_eq!(scene.health("web-000"), InstanceHealth::Ejected { until: at(1_000) });

    // And when it answers, it is back.
    let (id, ticket) = scene.begin(Pick::RoundRobin, 1);
    scene.balancer.end(ticket, CallVerdict::Good, at(1));
    assert_eq!(scene.health(&id), InstanceHealth::Healthy);
}

#[test]
fn what_is_known_stays_with_an_instance() {
    let mut scene = Scene::with(Ejection::default().failures(1), None, nodes(&[1; 4]));
    scene.fail("web-001", 1, 0);
    let (open, ticket) = scene.begin(Pick::RoundRobin, 0);
    let known = |scene: &Scene, id: &str| {
        let all = scene.balancer.show();
        let known = all.into_iter().find(|known| known.instance.id == id).unwrap();
        (known.in_flight, known.health, known.latency.is_some())
    };
    let before = known(&scene, &open);

    // Others come and go, weights change, and the order of the list does not matter.
    let mut changed: Vec<_> = (0..9).rev().map(|n| Arc::new(node(n, 3))).collect();
    changed.retain(|node| node.id != "web-003" || node.id == open);
    scene.balancer.update(changed, at(10));
    assert_eq!(known(&scene, &open), before);
    assert!(matches!(scene.health("web-001"), InstanceHealth::Ejected { .. }));

    // It leaves and comes back: it is a new one, and its old call is not counted.
    scene.balancer.update(Vec::new(), at(20));
    scene.balancer.update(nodes(&[1; 4]), at(30));
    assert_eq!(known(&scene, &open), (0, InstanceHealth::Healthy, false));
    assert_eq!(scene.health("web-001"), InstanceHealth::Healthy);
    for _ in 0..4 {
        let _held_open = scene.begin(Pick::RoundRobin, 30);
    }
    scene.balancer.end(ticket, CallVerdict::Failed, at(40));
    assert!(scene.balancer.show().iter().all(|known| known.in_flight == 1));
    assert_eq!(scene.out(), 0);
}

#[test]
fn another_endpoint_starts_anew() {
    let mut scene = Scene::with(Ejection::default().failures(1), None, nodes(&[1; 2]));
    scene.fail("web-001", 1, 0);
    let moved = Node { address: 7, ..node(1, 1) };
    scene.balancer.update(vec![Arc::new(node(0, 1)), Arc::new(moved)], at(1));
    assert_eq!(scene.health("web-001"), InstanceHealth::Healthy);

    // Calls to the old address end, and say nothing about the new one.
    let (_, old) = scene.begin(Pick::RoundRobin, 2);
    let (_, other) = scene.begin(Pick::RoundRobin, 2);
    let again = |number| Arc::new(Node { address: 8, ..node(number, 1) });
    scene.balancer.update(vec![again(0), again(1)], at(3));
    scene.balancer.end(old, CallVerdict::Failed, at(4));
    scene.balancer.end(other, CallVerdict::Failed, at(4));
    assert_eq!(scene.out(), 0);
}

#[test]
fn of_two_with_one_id_the_first_counts() {
    let twice = vec![Arc::new(node(1, 1)), Arc::new(node(1, 0)), Arc::new(node(0, 1))];
    let mut scene = Scene::with(Ejection::default(), None, twice);
    assert!(scene.count(Pick::RoundRobin, 10).values().eq(&[5, 5]));
}

/// Curator's round robin fails after 2^31 picks.
#[test]
fn no_counter_overflows() {
    let mut scene = Scene::with(Ejection::default(), None, nodes(&[u32::MAX; 50]));
    scene.balancer.at_its_limits();
    for _ in 0..200 {
        for how in ALL_WAYS {
            let (_, good) = scene.begin(how, u64::MAX / 2);
            let (_, failed) = scene.begin(how, u64::MAX / 2);
            scene.balancer.end(good, CallVerdict::Good, at(u64::MAX));
            scene.balancer.end(failed, CallVerdict::Failed, at(u64::MAX));
        }
        scene.balancer.at_its_limits();
    }
}

/// A step of the test.
#[derive(Clone, Debug)]
enum Step {
    Pick(u8),
    End(usize, CallVerdict),
    Wait(u16),
    Update(Vec<(usize, u32)>),
}

fn step() -> impl Strategy<Value = Step> {
    let verdict = prop_oneof![
        2 => Just(CallVerdict::Good),
        4 => Just(CallVerdict::Failed),
        1 => Just(CallVerdict::GivenUp),
    ];
    let instances = proptest::collection::vec((0_usize..12, 0_u32..4), 0..12);
    prop_oneof![
        8 => any::<u8>().prop_map(Step::Pick),
        8 => (any::<usize>(), verdict).prop_map(|(call, verdict)| Step::End(call, verdict)),
        2 => (0_u16..5_000).prop_map(Step::Wait),
        1 => instances.prop_map(Step::Update),
    ]
}

proptest! {
    /// Each gets its share by weight, off by a handful at most, for any number of picks.
    #[test]
    fn weighted_counts_are_those_of_the_weights(
        weights in proptest::collection::vec(0_u32..50, 1..20),
        picks in 1_u32..5_000,
    ) {
        let total: u32 = weights.iter().sum();
        prop_assume!(total > 0);
        let counts = Scene::new(&weights).count(Pick::Weighted, picks);
        for (number, weight) in weights.iter().enumerate() {
            let count = f64::from(counts.get(&node(number, 0).id).copied().unwrap_or_default());
            let expected = f64::from(picks) * f64::from(*weight) / f64::from(total);
            let bound = if *weight == 0 { 0.0 } else { 2.0 + f64::from(picks).log2() };
            prop_assert!((count - expected).abs() <= bound, "{count} instead of {expected}");
        }
    }

    /// In all cases: the cap holds, picks go only to instances that exist, have a weight and are not ejected
    /// (unless all are), and the calls in flight are those that have begun and not ended.
    #[test]
    fn a_balancer_keeps_its_promises(
        percent in 0_u8..=100,
        failures in 1_u32..4,
        steps in proptest::collection::vec(step(), 1..300),
    ) {
        let ejection = Ejection::default().failures(failures).at_most_percent(percent);
        let mut scene = Scene::with(ejection, None, nodes(&[1, 2, 3, 0, 1]));
        let (mut now, mut open) = (0, Vec::<(Arc<Node>, Ticket)>::new());
        for step in steps {
            match step {
                Step::Wait(millis) => now += u64::from(millis),
                Step::Update(instances) => {
                    let nodes: Vec<_> =
                        instances.into_iter().map(|(n, weight)| Arc::new(node(n, weight))).collect();
                    scene.balancer.update(nodes.clone(), at(now));
                    let ids: BTreeSet<_> = nodes.iter().map(|node| node.id.clone()).collect();
                    open.retain(|(node, _)| ids.contains(&node.id));
                }
                Step::End(call, verdict) if !open.is_empty() => {
                    let (_, ticket) = open.swap_remove(call % open.len());
                    scene.balancer.end(ticket, verdict, at(now));
                }
                Step::End(..) => {}
                Step::Pick(way) => {
                    let how = ALL_WAYS[usize::from(way) % ALL_WAYS.len()];
                    let takes_calls = |health| match health {
                        InstanceHealth::Ejected { until } => until <= at(now),
                        InstanceHealth::Healthy | InstanceHealth::OnTrial => true,
                    };
                    let known = scene.balancer.show();
                    match scene.balancer.pick(how, at(now)) {
                        Err(_) => prop_assert!(known.iter().all(|known| known.instance.weight == 0)),
                        Ok((node, ticket)) => {
                            prop_assert!(node.weight > 0);
                            let picked = known.iter().find(|known| known.instance.id == node.id);
                            let is_healthy = |known: &super::InstanceLoad<Node>| {
                                known.instance.weight > 0 && known.health == InstanceHealth::Healthy
                            };
                            let health = picked.expect("it is there").health;
                            prop_assert!(takes_calls(health) || !known.iter().any(is_healthy));
                            open.push((node, ticket));
                        }
                    }
                }
            }

            let known = scene.balancer.show();
            let weighted = known.iter().filter(|known| known.instance.weight > 0).count();
            prop_assert!(scene.out() <= weighted * usize::from(percent) / 100);
            for known in known {
                let begun = open.iter().filter(|(node, _)| node.id == known.instance.id).count();
                prop_assert_eq!(usize::try_from(known.in_flight), Ok(begun));
            }
        }
    }
}

/// Symptom: five tries with one key called the same dead instance, although others were healthy, and the fifth
/// ejected it.
#[test]
fn what_was_tried_is_picked_last() {
    let all = nodes(&[1, 1, 1, 0]);
    for how in ALL_WAYS {
        let mut balancer = Balancer::new(Ejection::default(), None, 7);
        balancer.update(all.clone(), at(0));
        let mut tried: Vec<Arc<Node>> = Vec::new();
        for _ in 0..3 {
            let (instance, ticket) = balancer.pick_except(&tried, how, at(1)).unwrap();
            balancer.end(ticket, CallVerdict::Failed, at(2));
            assert!(tried.iter().all(|tried| tried.id() != instance.id()), "{how:?}: {instance:?}");
            tried.push(instance);
        }
        let end = balancer.pick_except(&tried, how, at(3)).unwrap_err();
        assert_eq!(end, PickError::AllTried { instances: 3 });
    }
}

/// All clients that have tried the same instances agree on the instance that the key moves to.
#[test]
fn a_key_moves_to_its_next_owner() {
    let all = nodes(&[1; 9]);
    let mut one = Balancer::new(Ejection::default(), None, 1);
    one.update(all.clone(), at(0));
    for key in (0..50).map(|key: u32| key.to_string()) {
        let how = Pick::key(&key);
        let (owner, _) = one.pick(how, at(1)).unwrap();
        let (next, _) = one.pick_except(&[Arc::clone(&owner)], how, at(1)).unwrap();
        let mut other = Balancer::new(Ejection::default(), None, 2);
        other.update(all.iter().filter(|node| node.id() != owner.id()).cloned().collect(), at(0));
        assert_eq!(other.pick(how, at(1)).unwrap().0.id(), next.id());
        assert_eq!(one.pick_except(&[], how, at(1)).unwrap().0.id(), owner.id());
    }
}

/// An ejected instance is left out while another one is untried, and is better than none.
#[test]
fn an_ejected_instance_is_tried_when_no_other_is_left() {
    let all = nodes(&[1, 1, 1]);
    let mut balancer = Balancer::new(Ejection::default().failures(1), None, 7);
    balancer.update(all.clone(), at(0));
    let (ejected, ticket) = balancer.pick(Pick::RoundRobin, at(0)).unwrap();
    balancer.end(ticket, CallVerdict::Failed, at(1));
    let mut tried = Vec::new();
    for _ in 0..3 {
        tried.push(balancer.pick_except(&tried, Pick::PowerOfTwo, at(2)).unwrap().0);
    }
    assert_eq!(tried[2].id(), ejected.id());
}
