//! Tests with hand-made trees.

#![expect(clippy::disallowed_types, reason = "the servers' wall time, as they show it")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use lockkeeper_client::{SessionId, Stat, ZnodePath, Zxid};
use lockkeeper_locks::OwnerInfo;
use lockkeeper_locks::for_recipes::owner_data;
use lockkeeper_locks::inspect::KnownTree;

use crate::overview::{HoldTimes, Overview, Warning, WarningLimits};

/// The time at which all nodes were created, in milliseconds since 1970.
const CREATED: i64 = 1_000_000;

/// A tree by path. Missing parents are created.
pub(super) struct TestTree(BTreeMap<String, (Bytes, Stat)>);

/// The data of a node, and its session.
pub(super) struct NodeSpec(Bytes, SessionId);

impl From<&str> for NodeSpec {
    fn from(data: &str) -> Self {
        Self(Bytes::from(data.to_owned()), SessionId::NONE)
    }
}

pub(super) fn ephemeral(session: i64, data: &str) -> NodeSpec {
    NodeSpec(Bytes::from(data.to_owned()), SessionId(session))
}

impl TestTree {
    pub(super) fn new() -> Self {
        Self(BTreeMap::from([("/".to_owned(), (Bytes::new(), Stat::default()))]))
    }

    pub(super) fn with(mut self, path: &str, node: impl Into<NodeSpec>) -> Self {
        for (at, _) in path.match_indices('/').skip(1) {
            self.0.entry(path[..at].to_owned()).or_default();
        }
        let NodeSpec(data, ephemeral_owner) = node.into();
        let czxid = Zxid(i64::try_from(self.0.len()).unwrap());
        let stat =
            Stat { ephemeral_owner, czxid, ctime: CREATED, mtime: CREATED, ..Stat::default() };
        self.0.insert(path.to_owned(), (data, stat));
        self
    }

    fn overview(&self) -> Overview {
        Overview::in_tree(self, &ZnodePath::root())
    }
}

impl KnownTree for TestTree {
    fn node(&self, path: &str) -> Option<(Bytes, Stat)> {
        self.0.get(path).cloned()
    }

    fn children(&self, path: &str) -> Vec<String> {
        let prefix = format!("{}/", path.trim_end_matches('/'));
        let below = self.0.keys().filter_map(|key| key.strip_prefix(&prefix));
        below.filter(|name| !name.is_empty() && !name.contains('/')).map(str::to_owned).collect()
    }
}

fn contender(id: u8, kind: &str, number: u32) -> String {
    format!("_c_5e1d0b5c-7a5e-4d2c-9f0e-0123456789{id:02x}-{kind}-{number:010}")
}

fn owner() -> String {
    String::from_utf8(owner_data(&OwnerInfo::current(None)).to_vec()).unwrap()
}

fn seconds_later(seconds: u64) -> SystemTime {
    let created = Duration::from_millis(u64::try_from(CREATED).unwrap());
    SystemTime::UNIX_EPOCH + created + Duration::from_secs(seconds)
}

fn warnings(tree: &TestTree, after_seconds: u64) -> Vec<Warning> {
    let now = seconds_later(after_seconds);
    tree.overview().warnings(now, &WarningLimits::default(), &HoldTimes::default())
}

/// Two programs: the first leads, consumes a queue and holds a resource of a pool; the second waits everywhere.
fn busy_tree() -> TestTree {
    let item = "0123456789abcdef0123456789abcdef";
    TestTree::new()
        .with(&format!("/leader/{}", contender(1, "latch", 0)), ephemeral(1, "web-1"))
        .with(&format!("/leader/{}", contender(2, "latch", 1)), ephemeral(2, "web-2"))
        .with(
            "/leader-__leader__",
            &*format!(
                "{{\"v\":1,\"node\":\"{}\",\"value\":\"10.0.0.1\"}}",
                contender(1, "latch", 0)
            ),
        )
        .with(&format!("/lock/{}", contender(3, "lock", 0)), ephemeral(1, &owner()))
        .with(&format!("/lock/{}", contender(4, "lock", 1)), ephemeral(2, &owner()))
        .with("/workers/web-1", ephemeral(1, ""))
        .with("/workers/web-2", ephemeral(2, ""))
        .with("/services/web/7", ephemeral(1, "{\"name\":\"web\",\"id\":\"7\"}"))
        .with("/jobs", "{\"lockkeeper-queue\":1}")
        .with(&format!("/jobs/entries/0000000000/{item}.0-0000000000"), "")
        .with(&format!("/jobs/bodies/{item}"), "work")
        .with("/jobs/claims/0000000000-0000000000.1", ephemeral(1, ""))
        .with("/jobs/workers/1", ephemeral(1, ""))
        .with("/jobs/dead/x", "{\"reason\":\"no\",\"attempts\":3}")
        .with("/gpu", "{\"lockkeeper-pool\":1}")
        .with("/gpu/things", "[\"0\",\"1\"]")
        .with("/gpu/held/0", ephemeral(1, &owner()))
        .with("/gpu/line", "")
}

#[test]
fn an_overview_has_each_recipe_once_and_under_its_own_name() {
    let overview = busy_tree().overview();
    let locks: Vec<_> = overview.locks.iter().map(|lock| lock.path.as_str()).collect();
    assert_eq!(locks, ["/leader", "/lock"], "members, claims and things are no locks");
    let [election] = &overview.elections[..] else { panic!("{:?}", overview.elections) };
    let leader = election.leader.as_ref().unwrap();
    assert_eq!((leader.id.as_str(), leader.value.as_deref()), ("web-1", Some("10.0.0.1")));
    assert_eq!(election.candidates, 2);
    let members: Vec<_> = overview.groups[0].members.iter().map(|it| it.id.as_str()).collect();
    assert_eq!((overview.groups.len(), members), (1, vec!["web-1", "web-2"]));
    assert_eq!(overview.services[0].instances[0].1, SessionId(1));
    let report = &overview.queues[0].report;
    assert_eq!((report.waiting, report.claimed, report.dead, report.workers), (0, 1, 1, 1));
    let report = &overview.pools[0].report;
    assert_eq!((report.free.as_slice(), report.held.len()), (["1".to_owned()].as_slice(), 1));
}

#[test]
fn a_session_has_what_it_holds_waits_for_and_takes_part_in() {
    let overview = busy_tree().overview();
    let texts = |paths: &[ZnodePath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    let [first, second] = &overview.sessions[..] else { panic!("{:?}", overview.sessions) };
    assert_eq!(texts(&first.holds), ["/gpu", "/jobs", "/leader", "/lock"]);
    assert_eq!(texts(&first.takes_part), ["/jobs", "/services/web", "/workers"]);
    assert!(first.waits.is_empty() && first.owner.is_some());
    assert_eq!(
        (texts(&second.holds), texts(&second.waits)),
        (vec![], vec!["/leader".into(), "/lock".into()])
    );
}

/// Symptom: `status` did not tell which program an idle consumer is.
#[test]
fn a_consumer_has_its_program() {
    let tree = TestTree::new()
        .with("/jobs", "{\"lockkeeper-queue\":1}")
        .with("/jobs/workers/1", ephemeral(1, &owner()));
    let overview = tree.overview();
    let [session] = &overview.sessions[..] else { panic!("{:?}", overview.sessions) };
    assert_eq!(session.owner.as_ref().map(|owner| owner.pid), Some(std::process::id()));
}

#[test]
fn a_healthy_tree_has_no_warnings_but_for_dead_letters() {
    let names: Vec<_> = warnings(&busy_tree(), 60).iter().map(Warning::name).collect();
    assert_eq!(names, ["dead_letters"]);
}

#[test]
fn long_waits_are_told_once_for_each_lock() {
    let found = warnings(&busy_tree(), 301);
    let texts: Vec<_> = found.iter().map(ToString::to_string).collect();
    assert_eq!(
        texts,
        [
            "a contender has waited for /leader for 5m 1s",
            "a contender has waited for /lock for 5m 1s",
            "the oldest item of /jobs is 5m 1s old",
            "/jobs has 1 dead letter",
        ]
    );
}

#[test]
fn a_queue_without_consumers_is_told_at_once() {
    let item = "0123456789abcdef0123456789abcdef";
    let tree = TestTree::new()
        .with("/jobs", "{\"lockkeeper-queue\":1}")
        .with(&format!("/jobs/entries/0000000000/{item}.0-0000000000"), "");
    let found = warnings(&tree, 1);
    assert_eq!(found.iter().map(Warning::name).collect::<Vec<_>>(), ["no_consumers"]);
}

#[test]
fn a_lock_is_held_long_by_what_is_usual_for_it() {
    let tree = busy_tree();
    let lock = ZnodePath::new("/lock").unwrap();
    let overview = tree.overview();
    let holder = overview.lock(&lock).unwrap().holders().next().unwrap().node.clone();
    let long = |usual: u64, held: u64| {
        let times = HoldTimes {
            held_since: [(holder.clone(), seconds_later(0))].into(),
            usual: [(lock.clone(), Duration::from_secs(usual))].into(),
        };
        let found = overview.warnings(seconds_later(held), &WarningLimits::default(), &times);
        found.iter().any(|warning| matches!(warning, Warning::HeldLong { .. }))
    };
    assert!(long(2, 21) && !long(2, 19));
    assert!(!long(0, 9), "a few seconds are not long, whatever is usual");
}

#[test]
fn a_circle_is_a_warning() {
    let tree = TestTree::new()
        .with(&format!("/a/{}", contender(1, "lock", 0)), ephemeral(1, &owner()))
        .with(&format!("/a/{}", contender(2, "lock", 1)), ephemeral(2, &owner()))
        .with(&format!("/b/{}", contender(3, "lock", 0)), ephemeral(2, &owner()))
        .with(&format!("/b/{}", contender(4, "lock", 1)), ephemeral(1, &owner()));
    let found = warnings(&tree, 1);
    let [Warning::Deadlock { locks, is_certain: false }] = &found[..] else { panic!("{found:?}") };
    assert_eq!(locks.len(), 2);
}

#[test]
fn a_run_without_an_end_is_abandoned_once_its_holder_has_left() {
    let record = |token: &str| {
        format!("{{\"v\":1,\"run\":\"r\",\"attempt\":1,\"owner\":{},\"token\":{token}}}", owner())
    };
    let lock = format!("/job/{}", contender(1, "lock", 0));
    let tree = TestTree::new().with(&lock, ephemeral(1, &owner()));
    let token = tree.overview().locks[0].entries[0].token;
    let token = serde_json::to_string(&token).unwrap();
    let held =
        tree.with("/job-__once__", "{\"v\":1}").with("/job-__once__/key-a", &*record(&token));
    assert!(warnings(&held, 1).is_empty(), "it is at work");

    let left = TestTree::new()
        .with("/job-__once__", "{\"v\":1}")
        .with("/job-__once__/key-a", &*record(&token));
    let found = warnings(&left, 61);
    let [warning] = &found[..] else { panic!("{found:?}") };
    assert!(
        warning.to_string().starts_with("the run under /job for the key \"a\" by "),
        "{warning}"
    );
    assert!(
        warning.to_string().ends_with(" began 1m 1s ago and ended without a record"),
        "{warning}"
    );
}
