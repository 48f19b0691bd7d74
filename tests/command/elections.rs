//! `lockkeeper elect` and `leader`.

use anyhow::Result;
use lockkeeper_testkit::process::Process;
use rustix::process::{Signal, kill_process};

use crate::support::{Home, LIMIT, eventually};

fn stand(home: &Home, name: &str, value: &str, script: &str) -> Result<Process> {
    let command = home.command_of(&["elect", "sched", "--data", value, "-c", script]);
    Process::spawn(name, &command, home.folder())
}

#[tokio::test]
async fn a_request_moves_the_lead_and_a_signal_ends_it() -> Result<()> {
    let home = Home::new()?;
    let script = "echo $LOCKKEEPER_TOKEN; exec sleep 600";
    let mut first = stand(&home, "first", "1.2.3.4:80", script)?;
    eventually("the first one leads", || Ok(first.stdout().lines().count() == 1))?;
    let mut second = stand(&home, "second", "5.6.7.8:80", script)?;
    home.in_line("sched", 2)?;
    let leader = || Ok::<_, anyhow::Error>(home.ends("leader sched")?.stdout);
    assert_eq!(leader()?, "1.2.3.4:80\n");
    home.ends("elect -n sched -- true")?.complains(1, &["/sched is not free"]);

    home.ends("revoke sched")?.is_fine();
    eventually("the second one leads", || Ok(second.stdout().lines().count() == 1))?;
    eventually("its value", || Ok(leader()? == "5.6.7.8:80\n"))?;
    home.in_line("sched", 2)?;
    let shown = home.json("leader sched")?;
    assert_eq!(shown["token"].as_str(), Some(second.stdout().trim()), "{shown}");

    second.signal(Signal::TERM)?;
    assert_eq!(second.end(LIMIT).await?.code(), Some(143), "{}", second.tail());
    eventually("the first one leads again", || Ok(first.stdout().lines().count() == 2))?;
    let tokens: Vec<u128> = first.stdout().lines().map(|line| line.parse().unwrap_or(0)).collect();
    assert!(tokens[1] > tokens[0], "{tokens:?}");
    first.kill();
    eventually("nobody leads", || Ok(home.ends("leader sched")?.code == Some(1)))?;
    Ok(())
}

/// The run ends when the command ends. Without a command it does not end.
#[test]
fn the_code_is_the_commands() -> Result<()> {
    let home = Home::new()?;
    let ended = crate::support::Ended::of(&mut home.command_of(&["elect", "e", "-c", "exit 7"]))?;
    assert_eq!((ended.code, ended.stderr.as_str()), (Some(7), ""), "{ended:?}");
    home.ends("elect e")?.complains(64, &["<CMD>"]);
    home.ends("elect / -- true")?.complains(64, &["cannot be a lock"]);
    home.ends("leader e")?.complains(1, &["no candidate leads"]);
    Ok(())
}

/// A leader that loses its servers for longer than the lease ends its command, and stands again.
#[tokio::test]
async fn who_loses_the_lead_stands_again() -> Result<()> {
    let home = Home::new()?;
    let arguments =
        ["--session-timeout", "4s", "elect", "sched", "-c", "echo leads; exec sleep 600"];
    let command = home.command_of(&arguments);
    let mut first = Process::spawn("first", &command, home.folder())?;
    first.prints("leads", LIMIT).await?;
    let engine = home.signal_engine(Signal::STOP)?;
    eventually("the loss", || Ok(first.stderr().contains("waiting to lead again")))?;
    kill_process(engine, Signal::CONT)?;
    eventually("it leads again", || Ok(first.stdout().lines().count() == 2))?;
    first.kill();
    Ok(())
}
