//! The scenes of `demo`: what each has counted must be what the recipe promises.

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::{Client, ZnodePath};
use serde_json::{Value, json};

use crate::support::Home;

/// Those that are over before any session could end, and those that wait for the end of one.
const QUICK: [&str; 7] = ["publish", "balance", "names", "notify", "order", "disconnects", "herd"];
const WITH_A_DEATH: [&str; 5] = ["members", "leader", "queue", "crash", "deadlock"];

fn played(scene: &str) -> Result<Value> {
    Home::new()?.json(&format!("demo {scene}"))
}

/// The death of a program is noticed when its session ends, which is counted from what was last heard of
/// it: no earlier than this.
fn ends_a_session(shown: &Value, figure: &Value) -> Result<()> {
    let timeout = shown["session_timeout_ms"].as_u64().context("a timeout")?;
    let after = figure.as_u64().with_context(|| format!("no time: {shown}"))?;
    ensure!(after >= timeout / 2, "after {after} of {timeout} ms: {shown}");
    Ok(())
}

fn tokens(shown: &Value) -> Result<[u128; 2]> {
    let token = |index: usize| -> Result<u128> {
        Ok(shown["tokens"][index].as_str().context("a token")?.parse()?)
    };
    Ok([token(0)?, token(1)?])
}

#[test]
fn publish_costs_one_write_and_an_event_each() -> Result<()> {
    let shown = played("publish")?;
    assert_eq!(shown["writes"], 1, "{shown}");
    assert_eq!(shown["events"], json!([1, 1, 1]), "{shown}");
    let late = &shown["late"];
    assert_eq!(shown["heard"], json!([late, late, late]), "{shown}");
    Ok(())
}

#[test]
fn balance_goes_round_those_that_are_there() -> Result<()> {
    let shown = played("balance")?;
    assert_eq!(shown["requests"], 0, "a call is chosen without a request: {shown}");
    let calls = shown["calls"].as_u64().context("calls")?;
    let third = calls / 3;
    assert_eq!(shown["before"], json!({ "web-1": third, "web-2": third, "web-3": third }));
    assert_eq!(shown["after"], json!({ "web-1": calls / 2, "web-3": calls / 2 }), "{shown}");
    Ok(())
}

#[test]
fn names_and_numbers_are_unique() -> Result<()> {
    let shown = played("names")?;
    let given = shown["given"].as_array().context("names")?;
    let distinct: BTreeSet<_> = given.iter().filter_map(Value::as_str).collect();
    assert_eq!((given.len(), distinct.len()), (3, 3), "{shown}");
    assert_eq!(shown["fourth"], Value::Null, "all are taken: {shown}");
    assert_eq!(shown["after_release"], given[1], "{shown}");
    assert_eq!(shown["numbers"], 300, "{shown}");
    assert_eq!(shown["distinct"], 300, "{shown}");
    // Twelve blocks, and what their writers need once.
    let writes = shown["writes"].as_u64().context("writes")?;
    assert!((12..100).contains(&writes), "{shown}");
    Ok(())
}

#[test]
fn notify_wakes_all_and_nothing_is_missed() -> Result<()> {
    let shown = played("notify")?;
    assert_eq!(shown["woken"], 3, "{shown}");
    assert_eq!(shown["events"], json!([1, 1, 1]), "{shown}");
    assert!(shown["burst"].as_u64() > Some(1), "{shown}");
    assert_eq!(shown["looks"], json!([1, 1, 1]), "{shown}");
    Ok(())
}

#[test]
fn members_see_the_same_end_of_one() -> Result<()> {
    let shown = played("members")?;
    assert_eq!(shown["left"], json!(["three", "three"]), "{shown}");
    assert_eq!(shown["sizes"], json!([2, 2]), "{shown}");
    assert_eq!(shown["views"][0], shown["views"][1], "{shown}");
    for after in shown["seen_after_ms"].as_array().context("times")? {
        ends_a_session(&shown, after)?;
    }
    Ok(())
}

#[test]
fn leader_dies_and_one_leads_with_a_larger_token() -> Result<()> {
    let shown = played("leader")?;
    ends_a_session(&shown, &shown["leads_ms"])?;
    assert_eq!(shown["both_lead"], false, "{shown}");
    let [first, second] = tokens(&shown)?;
    assert!(second > first, "{shown}");
    assert_eq!(shown["seen"], json!(["one", "two"]), "{shown}");
    assert_eq!(shown["events_of_third"], 0, "it is not its turn: {shown}");
    Ok(())
}

#[test]
fn queue_loses_no_item_of_a_killed_consumer() -> Result<()> {
    let shown = played("queue")?;
    let done = shown["done"].as_object().context("items")?;
    assert_eq!(shown["items"], done.len(), "{shown}");
    assert!(done.values().all(|times| times == 1), "{shown}");
    assert_eq!(shown["left"], 0, "{shown}");
    let unfinished = shown["unfinished"].as_str().context("an item")?;
    for (item, attempt) in shown["attempts"].as_object().context("attempts")? {
        assert_eq!(*attempt, if item == unfinished { 2 } else { 1 }, "{item}: {shown}");
    }
    ends_a_session(&shown, &shown["taken_over_ms"])
}

#[test]
fn order_is_that_of_asking() -> Result<()> {
    let shown = played("order")?;
    assert_eq!(shown["asked"], json!(["R1", "R2", "W3", "R4"]), "{shown}");
    assert_eq!(shown["granted"], shown["asked"], "{shown}");
    assert_eq!(shown["holding"], json!([1, 2, 1, 1]), "{shown}");
    Ok(())
}

#[test]
fn crash_leaves_one_holder_at_a_time() -> Result<()> {
    let shown = played("crash")?;
    ends_a_session(&shown, &shown["lost_ms"])?;
    ends_a_session(&shown, &shown["granted_ms"])?;
    assert_eq!(shown["both_hold"], false, "{shown}");
    let [old, new] = tokens(&shown)?;
    assert!(new > old, "{shown}");
    assert_eq!((&shown["new_admitted"], &shown["old_refused"]), (&json!(true), &json!(true)));
    Ok(())
}

#[test]
fn deadlock_is_that_of_the_persistent_node() -> Result<()> {
    let shown = played("deadlock")?;
    assert_eq!(
        (&shown["freed"], &shown["deleted"]),
        (&json!("ephemeral"), &json!(true)),
        "{shown}"
    );
    ends_a_session(&shown, &shown["freed_ms"])?;
    assert_eq!(shown["ephemeral_granted"], true, "{shown}");
    assert_eq!(shown["persistent_granted"], false, "{shown}");
    assert_eq!(shown["persistent_stays"], true, "{shown}");
    Ok(())
}

#[test]
fn disconnects_cost_no_lock() -> Result<()> {
    let shown = played("disconnects")?;
    let holders = shown["holders"].as_u64().context("holders")?;
    assert!(holders > 1 && shown["connections"].as_u64() >= Some(holders), "{shown}");
    for all in ["sessions_kept", "locks_kept", "granted_later"] {
        assert_eq!(shown[all], holders, "{all}: {shown}");
    }
    assert_eq!(shown["granted_meanwhile"], 0, "{shown}");
    Ok(())
}

#[test]
fn herd_is_all_waiters_but_one() -> Result<()> {
    let shown = played("herd")?;
    let waiters = shown["waiters"].as_u64().context("waiters")?;
    let (node, line) = (&shown["one_node"], &shown["line"]);
    assert_eq!((&node["granted"], &line["granted"]), (&json!(1), &json!(1)), "{shown}");
    assert_eq!((&node["events"], &node["in_vain"]), (&json!(waiters), &json!(waiters - 1)));
    assert_eq!((&line["events"], &line["in_vain"]), (&json!(1), &json!(0)), "{shown}");
    // Each one that is woken asks again, and watches again; beside that there is the release.
    assert!(node["requests"].as_u64() >= Some(2 * waiters), "{shown}");
    assert_eq!(line["requests"], 1, "{shown}");
    Ok(())
}

/// Each is a few lines of at most 80 columns, is over soon, and is named in the help.
#[test]
fn each_scene_fits_a_terminal() -> Result<()> {
    let home = Home::new()?;
    let help = home.ends("demo --help")?.stdout;
    for scene in QUICK.iter().chain(&WITH_A_DEATH) {
        let start = Instant::now();
        let ended = home.ends(&format!("demo {scene}"))?;
        let took = start.elapsed();
        ended.is_fine();
        let lines: Vec<_> = ended.stdout.lines().collect();
        assert!((4..=20).contains(&lines.len()), "{}", ended.stdout);
        assert!(lines.iter().all(|line| line.chars().count() <= 80), "{}", ended.stdout);
        assert!(!ended.stdout.contains('\u{1b}'), "no colours outside of a terminal");
        let about = format!("- {scene}:");
        let line = help.lines().find_map(|line| line.trim().strip_prefix(&about));
        // The heading, which is what the help says.
        assert_eq!(line.map(str::trim), Some(lines[0]), "{help}");
        // A session of 15 s is not waited for.
        assert!(took < Duration::from_secs(10), "{scene}: {took:?}");
    }
    let refused = home.ends("demo herd --waiters 3")?;
    assert_eq!(refused.code, Some(64), "{refused:?}");
    Ok(())
}

/// What a scene has counted is what it prints.
#[test]
fn each_scene_prints_its_figures() -> Result<()> {
    let home = Home::new()?;
    for (scene, lines) in [
        ("publish", &["writes: 1", "events that each of them had: [1, 1, 1]"][..]),
        ("balance", &["{\"web-1\": 15, \"web-3\": 15}"][..]),
        ("names", &["300 are distinct"][..]),
        ("notify", &["wakes 3 of them; events of each: [1, 1, 1]"][..]),
        ("order", &["granted: R1 R2 W3 R4"][..]),
        ("disconnects", &["sessions kept: 20", "confirm: 20; granted to others: 0"][..]),
        ("herd", &["events: 20; in vain: 19", "events: 1; in vain: 0; requests: 1"][..]),
    ] {
        let ended = home.ends(&format!("demo {scene}"))?;
        crate::support::has_all(&ended.stdout, lines);
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn scenes_leave_nothing_on_a_server() -> Result<()> {
    let home = Home::new()?;
    home.ends("local start")?.is_fine();
    let servers = home.connect_string();
    for scene in QUICK {
        home.ends(&format!("--connect {servers} demo {scene}"))?.is_fine();
    }
    let client = Client::connect(&servers).await?;
    let (names, _) = client.children(&ZnodePath::root()).await?;
    let left: Vec<_> = names.iter().filter(|name| name.contains("demo")).collect();
    assert!(left.is_empty(), "{left:?}");
    client.close().await;
    Ok(())
}
