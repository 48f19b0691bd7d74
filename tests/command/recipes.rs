//! The nouns for groups, services, barriers, pools and ids, and `watch`.

use std::io::Read;
use std::net::TcpListener;
use std::process::{Command, Stdio};

use anyhow::{Context, Result};
use lockkeeper::{
    Barrier, Client, CountDownLatch, CreateMode, DoubleBarrier, Instance, Pool, Registration,
    ZnodePath,
};
use lockkeeper_testkit::process::Process;
use rustix::process::Signal;
use serde_json::{Value, json};

use crate::serve::in_memory;
use crate::support::{Ended, Home, LIMIT, eventually};
use crate::terminal::with_lockkeeper;

/// Starts a command in the background.
fn starts(home: &Home, name: &str, arguments: &[&str]) -> Result<Process> {
    Process::spawn(name, &home.command_of(arguments), home.folder())
}

/// The same for one whose script finds `lockkeeper`.
fn starts_script(home: &Home, name: &str, arguments: &str, script: &str) -> Result<Process> {
    let mut command = home.command(arguments);
    command.args(["--", "sh", "-c", script]);
    let path = with_lockkeeper(home, "sh")?;
    let path = path.get_envs().find_map(|(name, value)| value.filter(|_| name == "PATH"));
    command.env("PATH", path.context("a PATH")?);
    Process::spawn(name, &command, home.folder())
}

/// Runs a shell script that finds `lockkeeper` to its end.
fn shell(home: &Home, script: &str) -> Result<Ended> {
    Ended::of(with_lockkeeper(home, "sh")?.args(["-c", script]))
}

/// One field of each of a list.
fn column(list: &Value, field: &str) -> Value {
    let list = list.as_array().map(Vec::as_slice).unwrap_or_default();
    list.iter().map(|entry| entry[field].clone()).collect()
}

/// The whole lines of JSON that a command has written so far.
fn lines(process: &Process) -> Result<Vec<Value>> {
    let out = process.stdout();
    let whole = out.rsplit_once('\n').map_or("", |(whole, _)| whole);
    whole.lines().map(|line| Ok(serde_json::from_str(line)?)).collect()
}

#[tokio::test]
async fn a_member_is_there_until_its_process_is_told_to_end() -> Result<()> {
    let home = Home::new()?;
    for (signal, name) in [(Signal::INT, "int"), (Signal::TERM, "term"), (Signal::HUP, "hup")] {
        // The session outlives the test.
        let line = format!("members join g --name {name} --data {name}-data --session-timeout 10m");
        let mut member = home.spawns(name, &line)?;
        member.prints("is a member of /g", LIMIT).await?;
        let listed = home.json("members ls g")?;
        assert_eq!(column(&listed["members"], "member"), json!([name]));
        assert_eq!(column(&listed["members"], "data"), json!([format!("{name}-data")]));
        let text = home.ends("members ls g")?.stdout;
        assert!(text.contains(&format!("  {name}-data\n")), "{text}");

        member.signal(Signal::USR1)?;
        member.signal(signal)?;
        assert_eq!(member.end(LIMIT).await?.code(), Some(0), "{}", member.tail());
        assert_eq!(home.json("members ls g")?["members"], json!([]));
    }
    assert_eq!(home.ends("members ls g")?.stdout, "/g has no members\n");
    Ok(())
}

#[tokio::test]
async fn a_member_is_there_while_its_command_runs() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $LOCKKEEPER_GROUP $LOCKKEEPER_MEMBER ${LOCKKEEPER_DIGEST:-none}; \
                  lockkeeper members ls secret --json; exit 3";
    let line = "members join secret --name me --digest ann:secret";
    let mut member = starts_script(&home, "member", line, script)?;
    assert_eq!(member.end(LIMIT).await?.code(), Some(3), "{}", member.tail());
    let out = member.stdout();
    let (first, listed) = out.split_once('\n').context("a line")?;
    assert_eq!(first, "/secret me none", "the output is the command's own");
    let listed: Value = serde_json::from_str(listed)?;
    assert_eq!(column(&listed["members"], "member"), json!(["me"]));

    for (trap, code) in [("trap 'exit 7' TERM;", 7), ("", 143)] {
        let script = format!("{trap} echo ready; while :; do read -r line < fifo; done");
        fifo(&home)?;
        let mut member = starts_script(&home, "traps", "members join g --name me", &script)?;
        member.prints("ready", LIMIT).await?;
        member.signal(Signal::TERM)?;
        assert_eq!(member.end(LIMIT).await?.code(), Some(code), "{}", member.tail());
    }
    home.ends("members join g -- no-such-command")?.complains(127, &["no-such-command"]);
    assert_eq!(home.json("members ls g")?["members"], json!([]));
    Ok(())
}

/// A pipe with a name, which a script waits at for as long as no one writes to it.
fn fifo(home: &Home) -> Result<()> {
    let path = home.folder().join("fifo");
    if !path.exists() {
        let made = Command::new("mkfifo").arg(&path).status()?;
        anyhow::ensure!(made.success(), "no fifo");
    }
    Ok(())
}

#[tokio::test]
async fn a_member_that_is_killed_is_gone_after_its_session() -> Result<()> {
    let home = Home::new()?;
    let mut member = home.spawns("member", "members join g --name me --session-timeout 1s")?;
    member.prints("is a member", LIMIT).await?;
    member.kill();
    // A name that another program has is waited for.
    let mut next = home.spawns("next", "--json members join g --name me")?;
    next.prints("\n", LIMIT).await?;
    let joined: Value = serde_json::from_str(&next.stdout())?;
    assert_eq!((&joined["group"], &joined["member"]), (&json!("/g"), &json!("me")));
    let listed = home.json("members ls g")?;
    assert_eq!(column(&listed["members"], "token"), json!([joined["token"]]));
    Ok(())
}

#[tokio::test]
async fn a_taken_name_is_waited_for_with_a_word() -> Result<()> {
    let home = Home::new()?;
    let mut first = home.spawns("first", "members join g --name me")?;
    first.prints("is a member", LIMIT).await?;
    let mut second = home.spawns("second", "members join g --name me")?;
    eventually("it is told", || Ok(second.stderr().contains("is taken by the session")))?;
    assert_eq!(second.stdout(), "");
    let mut third = home.spawns("third", "members join g --name me")?;
    eventually("it is told", || Ok(third.stderr().contains("is taken by the session")))?;
    third.signal(Signal::TERM)?;
    assert_eq!(third.end(LIMIT).await?.code(), Some(143), "{}", third.tail());
    first.signal(Signal::TERM)?;
    second.prints("me is a member of /g", LIMIT).await?;
    Ok(())
}

#[tokio::test]
async fn members_are_waited_for() -> Result<()> {
    let home = Home::new()?;
    home.ends("members wait g 1 -n")?.complains(1, &["/g has 0 of 1 members"]);
    home.ends("members wait g 1 -w 10ms")?.complains(1, &["/g", "1 members"]);
    let mut waits = home.spawns("waits", "members wait g 2")?;
    let mut members = Vec::new();
    for name in ["one", "two"] {
        assert!(waits.status()?.is_none(), "{}", waits.tail());
        let mut member = home.spawns(name, &format!("members join g --name {name}"))?;
        member.prints("is a member", LIMIT).await?;
        members.push(member);
    }
    assert_eq!(waits.end(LIMIT).await?.code(), Some(0), "{}", waits.tail());
    home.ends("members wait g 2 -n")?.is_fine();
    home.ends("members wait g 3 -w 10ms")?.complains(1, &["/g", "3 members"]);

    let mut waits = home.spawns("ended", "members wait g 3")?;
    // Not before it listens to signals.
    eventually("it waits", || Ok(sessions(&home)? == 3))?;
    waits.signal(Signal::INT)?;
    assert_eq!(waits.end(LIMIT).await?.code(), Some(130), "{}", waits.tail());
    Ok(())
}

/// How many sessions the engine has.
fn sessions(home: &Home) -> Result<u64> {
    let status = home.json("local status")?;
    status["sessions"].as_u64().with_context(|| format!("no sessions in {status}"))
}

#[tokio::test]
async fn each_change_of_members_is_listed_while_someone_reads() -> Result<()> {
    let home = Home::new()?;
    let watch = starts(&home, "watch", &["--json", "members", "ls", "g", "--watch"])?;
    let seen = |names: Value| {
        eventually(&format!("{names} are seen"), || {
            Ok(lines(&watch)?.last().is_some_and(|it| column(&it["members"], "member") == names))
        })
    };
    seen(json!([]))?;
    let mut member = home.spawns("member", "members join g --name me")?;
    seen(json!(["me"]))?;
    member.prints("is a member", LIMIT).await?;
    home.signal_engine(Signal::KILL)?;
    member.signal(Signal::TERM)?;
    assert_eq!(member.end(LIMIT).await?.code(), Some(0), "{}", member.tail());
    seen(json!([]))?;

    let ended = shell(&home, "lockkeeper members ls g --watch | head -2; echo over")?;
    assert!(ended.stdout.ends_with("/g has no members\nover\n"), "{ended:?}");
    let script = "lockkeeper service ls services/web --watch | head -2; echo over";
    let ended = shell(&home, script)?;
    assert!(ended.stdout.ends_with("/services/web has no instances\nover\n"), "{ended:?}");
    Ok(())
}

#[tokio::test]
async fn an_instance_is_found_until_its_command_is_told_to_end() -> Result<()> {
    let home = Home::new()?;
    let script = "trap 'lockkeeper service pick services/web; echo $?; exit 5' TERM; \
                  echo $LOCKKEEPER_SERVICE $LOCKKEEPER_INSTANCE; while :; do read -r line < fifo; done";
    fifo(&home)?;
    let line = "service register services/web --address ::1 --port 80 --ssl-port 443 --weight 2 \
                --zone b --data {\"version\":7}";
    let mut instance = starts_script(&home, "instance", line, script)?;
    instance.prints("/services/web [::1]:80\n", LIMIT).await?;

    for options in ["", "--key a", "--zone b", "--zone c"] {
        let picked = home.ends(&format!("service pick services/web {options}"))?;
        picked.is_fine();
        assert_eq!(picked.stdout, "[::1]:80\n", "{options}");
    }
    let picked = home.json("service pick services/web")?;
    assert_eq!((&picked["payload"]["version"], &picked["weight"]), (&json!(7), &json!(2)));
    let listed = home.json("service ls services/web")?;
    assert_eq!(column(&listed["instances"], "ssl_port"), json!([443]));
    let text = home.ends("service ls services/web")?.stdout;
    assert!(text.contains("[::1]:80  [::1]:80  2       b     "), "{text}");
    assert_eq!(home.ends("service ls services --all")?.stdout, "web\n");

    // It gets no new calls before its command hears of it.
    instance.signal(Signal::TERM)?;
    assert_eq!(instance.end(LIMIT).await?.code(), Some(5), "{}", instance.tail());
    assert!(instance.stdout().ends_with("\n1\n"), "{}", instance.tail());
    assert!(instance.stderr().contains("drained"), "{}", instance.tail());
    home.ends("service pick services/web")?.complains(1, &["/services/web", "no instance"]);
    assert_eq!(home.json("service ls services/web")?["instances"], json!([]));
    Ok(())
}

#[tokio::test]
async fn an_instance_takes_the_place_of_its_earlier_life() -> Result<()> {
    let home = Home::new()?;
    let line = "service register s/web --address db1 --name web1 --session-timeout 10m";
    let mut first = home.spawns("first", &format!("{line} --port 1"))?;
    first.prints("web1 is an instance of /s/web, until Ctrl-C\n", LIMIT).await?;
    first.kill();
    assert_eq!(home.ends("service pick s/web")?.stdout, "db1:1\n");
    let mut second = home.spawns("second", &format!("--json {line} --port 2"))?;
    second.prints("\n", LIMIT).await?;
    let shown: Value = serde_json::from_str(&second.stdout())?;
    assert_eq!((&shown["id"], &shown["node"]), (&json!("web1"), &json!("/s/web/web1")));
    assert_eq!(home.ends("service pick s/web")?.stdout, "db1:2\n");
    second.signal(Signal::TERM)?;
    assert_eq!(second.end(LIMIT).await?.code(), Some(0), "{}", second.tail());
    assert_eq!(home.json("service ls s/web")?["instances"], json!([]));
    Ok(())
}

#[tokio::test]
async fn what_is_no_instance_is_named_and_not_picked() -> Result<()> {
    let home = Home::new()?;
    home.ends("service ls s/web")?.is_fine();
    let client = home.client().await?;
    client.ensure(&ZnodePath::new("/s/web")?, CreateMode::Persistent).await?;
    let node = ZnodePath::new("/s/web/a")?;
    client.create(&node, "ju\u{1b}nk", CreateMode::Persistent).await?;
    home.ends("service pick s/web")?.complains(1, &["no instance"]);
    let listed = home.ends("service ls s/web")?.stdout;
    assert!(listed.contains("a: its data is not the JSON of an instance"), "{listed}");

    // One that does not say where it is.
    let instance = Instance::new("web", "b");
    let instance = Registration::start(&client, "/s", instance).await?;
    home.ends("service pick s/web")?.complains(1, &["were tried"]);
    instance.update(|it| it.address = Some("db\u{1b}1".to_owned())).await?;
    assert_eq!(home.ends("service pick s/web")?.stdout, "db\u{fffd}1\n");
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn a_barrier_is_closed_until_it_is_opened() -> Result<()> {
    let home = Home::new()?;
    home.ends("barrier wait b -n")?.is_fine();
    assert_eq!(home.ends("barrier show b")?.stdout, "/b: open\n");
    home.ends("barrier close b")?.is_fine();
    home.ends("barrier close b")?.is_fine();
    for limit in ["-n", "-w 0", "-w 10ms"] {
        home.ends(&format!("barrier wait b {limit}"))?.complains(1, &["/b is closed"]);
    }
    let shown = home.json("barrier show b")?;
    assert_eq!((&shown["closed"], &shown["session"]), (&json!(true), &Value::Null));
    let text = home.ends("barrier show b")?.stdout;
    assert!(
        text.starts_with("/b: closed for ") && text.ends_with(", until a program opens it\n"),
        "{text}"
    );

    let mut waits = home.spawns("waits", "barrier wait b")?;
    eventually("it waits", || Ok(sessions(&home)? == 1))?;
    assert!(waits.status()?.is_none(), "{}", waits.tail());
    home.ends("barrier open b")?.is_fine();
    assert_eq!(waits.end(LIMIT).await?.code(), Some(0), "{}", waits.tail());
    home.ends("barrier open b")?.is_fine();
    assert_eq!(home.json("barrier show b")?["closed"], json!(false));
    Ok(())
}

#[tokio::test]
async fn a_barrier_that_is_held_closed_opens_with_its_process() -> Result<()> {
    let home = Home::new()?;
    let line = "barrier close b --while-held --session-timeout 10m";
    let mut holder = home.spawns("holder", line)?;
    holder.prints("/b is closed, until Ctrl-C\n", LIMIT).await?;
    home.ends("barrier close b")?.complains(1, &["closed by a guard"]);
    home.ends(line)?.complains(1, &["/b is already closed"]);
    let text = home.ends("barrier show b")?.stdout;
    assert!(text.contains(&format!("until the end of process {} on ", holder.id())), "{text}");
    holder.signal(Signal::TERM)?;
    assert_eq!(holder.end(LIMIT).await?.code(), Some(0), "{}", holder.tail());
    home.ends("barrier wait b -n")?.is_fine();

    let mut holder = home.spawns("again", &format!("--json {line}"))?;
    holder.prints("\n", LIMIT).await?;
    let told: Value = serde_json::from_str(&holder.stdout())?;
    assert_eq!(home.json("barrier show b")?["session"], told["session"]);
    home.ends("barrier open b")?.is_fine();
    assert_eq!(holder.end(LIMIT).await?.code(), Some(1), "{}", holder.tail());
    assert!(holder.stderr().contains("/b was opened by another program"), "{}", holder.tail());

    let mut holder = home.spawns("killed", "barrier close b --while-held --session-timeout 1s")?;
    holder.prints("is closed", LIMIT).await?;
    holder.kill();
    home.ends("barrier wait b")?.is_fine();
    Ok(())
}

#[tokio::test]
async fn parties_begin_and_end_together() -> Result<()> {
    let home = Home::new()?;
    fifo(&home)?;
    home.ends("barrier enter d 2 -w 10ms -- true")?.complains(1, &["not all parties of /d"]);
    let script = "echo $LOCKKEEPER_BARRIER $LOCKKEEPER_PARTY $LOCKKEEPER_PARTIES $LOCKKEEPER_ROUND; \
                  cat fifo; exit 4";
    let mut one = starts_script(&home, "one", "barrier enter d 2 --name one", script)?;
    eventually("one waits", || Ok(home.json("barrier show d")?["waiting"] == json!(["one"])))?;
    assert_eq!(home.ends("barrier show d")?.stdout, "/d: 1 of 2 parties waits for round 0: one\n");
    assert_eq!(one.stdout(), "");
    let mut two = starts_script(&home, "two", "barrier enter d 2 --name two", "echo in")?;
    one.prints("/d one 2 0\n", LIMIT).await?;
    two.prints("in\n", LIMIT).await?;
    // It waits for the other to leave.
    eventually("the next round", || Ok(home.json("barrier show d")?["round"] == 1))?;
    assert!(two.status()?.is_none(), "{}", two.tail());
    std::fs::write(home.folder().join("fifo"), "over")?;
    assert_eq!(one.end(LIMIT).await?.code(), Some(4), "{}", one.tail());
    assert_eq!(two.end(LIMIT).await?.code(), Some(0), "{}", two.tail());

    // Without commands.
    let mut one = home.spawns("plain", "barrier enter d 2 --name one")?;
    home.ends("barrier enter d 2 --name two")?.is_fine();
    assert_eq!(one.end(LIMIT).await?.code(), Some(0), "{}", one.tail());
    Ok(())
}

#[tokio::test]
async fn a_party_that_dies_or_gives_up_is_noticed() -> Result<()> {
    let home = Home::new()?;
    fifo(&home)?;
    let mut waits = home.spawns("waits", "barrier enter d 2 --name waits")?;
    eventually("it waits", || Ok(home.json("barrier show d")?["waiting"] == json!(["waits"])))?;
    waits.signal(Signal::TERM)?;
    assert_eq!(waits.end(LIMIT).await?.code(), Some(143), "{}", waits.tail());
    assert_eq!(home.json("barrier show d")?["waiting"], json!([]));

    let line = "barrier enter d 2 --name dies --session-timeout 1s";
    let mut dies = starts_script(&home, "dies", line, "echo in; exec cat fifo")?;
    let mut stays = starts_script(&home, "stays", "barrier enter d 2 --name stays", "echo in")?;
    dies.prints("in", LIMIT).await?;
    dies.kill();
    assert_eq!(stays.end(LIMIT).await?.code(), Some(1), "{}", stays.tail());
    assert!(stays.stderr().contains("dies died inside"), "{}", stays.tail());
    // The process that it ran is not a child of the test.
    std::fs::write(home.folder().join("fifo"), "over")?;
    Ok(())
}

#[tokio::test]
async fn what_is_something_else_is_refused() -> Result<()> {
    let home = Home::new()?;
    home.ends("barrier close gate")?.is_fine();
    let client = home.client().await?;
    DoubleBarrier::new(&client, "/parties", 2)?.inspect().await?;
    CountDownLatch::new(&client, "/latch", 2)?.count_down().await?;
    client.ensure(&ZnodePath::new("/ids/reserved")?, CreateMode::Persistent).await?;
    client.ensure(&ZnodePath::new("/g")?, CreateMode::Persistent).await?;
    client.create(&ZnodePath::new("/g/x")?, "", CreateMode::Persistent).await?;
    let junk = (0..1024).map(|number| {
        let node = ZnodePath::new(&format!("/ids/reserved/{number}"))?;
        Ok(client.create(&node, "junk", CreateMode::Persistent))
    });
    for created in junk.collect::<Result<Vec<_>>>()? {
        created.await?;
    }
    for (line, part) in [
        ("barrier enter gate 2", "is not a double barrier"),
        ("barrier wait parties", "is not a barrier"),
        ("barrier wait latch -n", "is not a barrier: it has a latch"),
        ("barrier close latch", "is not a barrier: it has a latch"),
        ("barrier show latch", "is not a double barrier: it has a latch"),
        ("pool ls gate", "part of a pool"),
        ("id ids", "claim to a number"),
        ("members join gate/x/y --name z/z", "z/z"),
    ] {
        let code = if line.starts_with("members") { 64 } else { 65 };
        home.ends(line)?.complains(code, &[part]);
    }
    // A look does not make a barrier.
    assert!(Barrier::new(&client, "/gate")?.is_closed().await?);
    let listed = home.ends("members ls g")?;
    assert_eq!(listed.stdout, "/g has no members\n/g/x: not a member\n", "{listed:?}");
    assert_eq!(home.json("members ls g")?["foreign"], json!(["/g/x"]));
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn the_things_of_a_pool_are_listed() -> Result<()> {
    let home = Home::new()?;
    assert_eq!(home.json("pool ls gpu")?["exists"], json!(false));
    let client = home.client().await?;
    assert!(client.exists(&ZnodePath::new("/gpu")?).await?.is_none(), "a look has made it");

    let pool = Pool::builder(&client, "/gpu").label("train").build()?;
    pool.change(|things| things.extend(["a".to_owned(), "b".to_owned()])).await?;
    let guard = pool.only(["a"]).acquire().await?;
    let waits = home.starts("waits", "--one-of gpu/a", "true")?;
    eventually("it waits", || {
        Ok(home.json("pool ls gpu")?["waiting"].as_array().map(Vec::len) == Some(1))
    })?;
    let listed = home.json("pool ls gpu")?;
    assert_eq!(listed["free"], json!(["b"]));
    assert_eq!(column(&listed["held"], "thing"), json!(["a"]));
    assert_eq!(listed["held"][0]["token"], json!(guard.token().to_string()));
    assert_eq!(listed["waiting"][0]["only"], json!(["a"]));
    let text = home.ends("pool ls gpu")?.stdout;
    assert!(text.contains("(train)") && text.contains("b      free\n"), "{text}");
    assert!(text.contains(" has waited for ") && text.contains("for one of a\n"), "{text}");
    drop(waits);
    guard.release().await?;
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn ids_come_once_and_grow() -> Result<()> {
    let home = Home::new()?;
    let mut all: Vec<i64> = Vec::new();
    for line in ["id i", "id i --count 5000", "id i -n"] {
        let ended = home.ends(line)?;
        ended.is_fine();
        for id in ended.stdout.lines() {
            all.push(id.parse()?);
        }
    }
    let shown = home.json("id i --count 2")?;
    for id in shown["ids"].as_array().context("a list")? {
        all.push(id.as_str().context("text")?.parse()?);
    }
    assert_eq!(all.len(), 5004);
    assert!(all.is_sorted_by(|one, next| one < next), "they do not grow");
    Ok(())
}

#[tokio::test]
async fn a_slow_reader_of_ids_keeps_no_number_and_gets_all() -> Result<()> {
    let home = Home::new()?;
    home.ends("id i")?.is_fine();
    let client = home.client().await?;
    let mut command = home.command("id i --count 50000");
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut out = child.stdout.take().context("a pipe")?;
    // Its pipe is full by then: it does not end.
    let mut first = [0; 1];
    out.read_exact(&mut first)?;
    let held = client.children(&ZnodePath::new("/i/held")?).await?.0;
    assert!(held.is_empty(), "{held:?}");
    assert!(child.try_wait()?.is_none());
    let mut rest = String::new();
    out.read_to_string(&mut rest)?;
    assert_eq!(rest.lines().count(), 50_000);
    assert!(child.wait()?.success());

    // A reader that goes away is not an error.
    let ended = shell(&home, "(lockkeeper id i --count 50000; echo $? >&2) | head -1")?;
    assert_eq!((ended.stdout.lines().count(), ended.stderr.as_str()), (1, "0\n"), "{ended:?}");
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn a_command_runs_after_each_change() -> Result<()> {
    let home = Home::new()?;
    home.ends("value get v")?;
    let client = home.client().await?;
    let node = ZnodePath::new("/n")?;
    let child = ZnodePath::new("/n/child")?;
    let script =
        "echo \"$LOCKKEEPER_PATH $LOCKKEEPER_EXISTS ${LOCKKEEPER_VERSION-none} $(cat).\"; false";
    let line = ["watch", "n", "--", "sh", "-c", script];
    let mut watch = starts(&home, "watch", &line)?;
    let tree = [line[0], line[1], "--tree", "--", "sh", "-c", "echo run"];
    let tree = starts(&home, "tree", &tree)?;
    let ran = |count: usize| {
        let tree = &tree;
        move || eventually(&format!("{count} runs"), || Ok(tree.stdout().lines().count() == count))
    };

    let mut expected = "/n 0 none .\n".to_owned();
    watch.prints(&expected, LIMIT).await?;
    ran(1)()?;
    client.create(&node, "red", CreateMode::Persistent).await?;
    expected += "/n 1 0 red.\n";
    watch.prints(&expected, LIMIT).await?;
    ran(2)()?;
    client.set_data(&node, "blue", None).await?;
    expected += "/n 1 1 blue.\n";
    watch.prints(&expected, LIMIT).await?;
    ran(3)()?;
    client.create(&child, "", CreateMode::Persistent).await?;
    expected += "/n 1 1 blue.\n";
    watch.prints(&expected, LIMIT).await?;
    ran(4)()?;
    // No change of the znode itself.
    client.set_data(&child, "x", None).await?;
    ran(5)()?;
    client.delete(&child, None).await?;
    expected += "/n 1 1 blue.\n";
    watch.prints(&expected, LIMIT).await?;
    ran(6)()?;

    home.signal_engine(Signal::KILL)?;
    // Either of them starts it again.
    home.ends("ls")?;
    client.close().await;
    let client = home.client().await?;
    client.set_data(&node, "green", None).await?;
    expected += "/n 1 2 green.\n";
    watch.prints(&expected, LIMIT).await?;
    client.delete(&node, None).await?;
    expected += "/n 0 none .\n";
    watch.prints(&expected, LIMIT).await?;
    assert_eq!(watch.stdout(), expected, "nothing else was a change");
    watch.signal(Signal::TERM)?;
    assert_eq!(watch.end(LIMIT).await?.code(), Some(143), "{}", watch.tail());
    client.close().await;
    Ok(())
}

#[tokio::test]
async fn changes_while_a_command_runs_are_one() -> Result<()> {
    let home = Home::new()?;
    fifo(&home)?;
    home.ends("value get v")?;
    let client = home.client().await?;
    let node = ZnodePath::new("/n")?;
    client.create(&node, "0", CreateMode::Persistent).await?;
    let script = "trap 'echo told; exit 9' TERM; echo begin $(cat); read -r line < fifo; echo end";
    let mut watch = starts(&home, "watch", &["watch", "n", "--", "sh", "-c", script])?;
    watch.prints("begin 0\n", LIMIT).await?;
    for value in ["1", "2", "3"] {
        client.set_data(&node, value, None).await?;
    }
    assert_eq!(watch.stdout(), "begin 0\n");
    std::fs::write(home.folder().join("fifo"), "\n")?;
    watch.prints("begin 0\nend\nbegin ", LIMIT).await?;
    // The last change may not have been reported when the command ended.
    let mut again = watch.stdout();
    while !again.contains("begin 3\n") {
        std::fs::write(home.folder().join("fifo"), "\n")?;
        watch.prints(&format!("{}end\nbegin ", watch.stdout()), LIMIT).await?;
        again = watch.stdout();
    }
    assert_eq!(again.matches("begin").count(), again.matches("end").count() + 1, "{again}");
    watch.signal(Signal::TERM)?;
    assert_eq!(watch.end(LIMIT).await?.code(), Some(143), "{}", watch.tail());
    assert!(watch.stdout().ends_with("told\n"), "{}", watch.tail());
    client.close().await;
    Ok(())
}

#[test]
fn a_watch_ends_with_a_failure_if_that_is_wanted() -> Result<()> {
    let home = Home::new()?;
    assert_eq!(home.ends("watch n --until-failure -- false")?.code, Some(1));
    home.ends("watch n -- no-such-command")?.complains(127, &["no-such-command"]);
    Ok(())
}

/// Every verb, with what it needs.
const LINES: [&str; 14] = [
    "members join g",
    "members ls g",
    "members ls g --watch",
    "members wait g 1",
    "service register s/web --address a --port 1",
    "service ls s/web",
    "service ls s --all",
    "service pick s/web",
    "barrier close b",
    "barrier close b --while-held",
    "barrier enter b/c 2",
    "pool ls p",
    "id i",
    "watch n -- true",
];

#[test]
fn servers_that_do_not_answer_are_told_of() -> Result<()> {
    let home = Home::new()?;
    // It takes connections, and never answers.
    let silent = TcpListener::bind("127.0.0.1:0")?;
    let options = format!("--connect {} --connect-timeout 100ms", silent.local_addr()?);
    let more = ["barrier open b", "barrier wait b", "barrier wait b -n", "barrier show b"];
    for line in LINES.iter().chain(&more) {
        home.ends(&format!("{options} {line}"))?.complains(75, &["no ZooKeeper server reachable"]);
    }
    Ok(())
}

#[tokio::test]
async fn what_is_not_permitted_is_told_as_that() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let ann = Client::builder().digest("ann", "secret").default_acl("auth::cdrwa".parse()?);
    let ann = ann.connect(&address).await?;
    for path in ["/g", "/s/web", "/b", "/p", "/i", "/n"] {
        ann.ensure(&ZnodePath::new(path)?, CreateMode::Persistent).await?;
    }
    for line in LINES.iter().filter(|line| **line != "barrier close b --while-held") {
        let ended = home.ends(&format!("--connect {address} --digest eve:secret {line}"))?;
        assert_eq!(ended.code, Some(77), "{line}: {ended:?}");
    }
    ann.close().await;
    Ok(())
}

#[test]
fn wrong_usage_is_refused_before_anything_is_done() -> Result<()> {
    let home = Home::new()?;
    for (line, part) in [
        ("members join", "GROUP"),
        ("members join g --data", "--data"),
        ("members wait g", "N"),
        ("members wait g 0", "greater than zero"),
        ("members wait g 1 -n -w 1s", "--wait"),
        ("--json members wait g 1", "--json has no effect"),
        ("members ls a//b", "empty segment"),
        ("service register web --address a --port 1", "services/web"),
        ("service register s/web --address a", "--port"),
        ("service register s/web --address a --port 70000", "70000"),
        ("service register s/web --address a --port 1 --name x/y", "id of an instance"),
        ("service register s/web --address a --port 1 --data {", "--data"),
        ("service ls web", "--all"),
        ("service pick s/web --key a --zone b", "--zone"),
        ("barrier enter b", "PARTIES"),
        ("barrier enter b 0", "greater than zero"),
        ("barrier enter b 2 --name x/y", "party name"),
        ("barrier enter b 2 -w 0", "longer than zero"),
        ("id i --count 0", "0"),
        ("id i --count 1000001", "1000001"),
        ("watch n", "CMD"),
        ("watch zookeeper//x -- true", "empty segment"),
    ] {
        home.ends(line)?.complains(64, &[part]);
    }
    Ok(())
}
