//! Servers of one `--connect` that are not one service.

use anyhow::Result;
use lockkeeper_testkit::process::Process;

use crate::serve::served;
use crate::support::Home;

/// An engine with a directory of its own.
async fn engine(home: &Home, name: &str) -> Result<(Process, String)> {
    let options = format!("--listen 127.0.0.1:0 --durability memory --data-dir {name}");
    served(home, name, &options).await
}

/// Three engines with the configuration of an ensemble ran one command three times at once.
#[tokio::test]
async fn three_engines_of_one_list_are_refused() -> Result<()> {
    let home = Home::new()?;
    let (mut servers, mut list) = (Vec::new(), Vec::new());
    for number in 0..3 {
        let (server, address) = engine(&home, &format!("s{number}")).await?;
        servers.push(server);
        list.push(address);
    }

    let list = list.join(",");
    for options in ["", "-n", "-w 5s", "--shared", "--permits 2"] {
        let ended = home.runs(&format!("--connect {list} {options} l"), "echo ran > ran")?;
        assert_eq!(ended.code, Some(78), "{options}: {ended:?}");
        assert!(ended.stderr.contains("are not one service"), "{options}: {ended:?}");
    }
    assert!(!home.folder().join("ran").exists(), "no command was run");
    Ok(())
}

/// An unreachable server proves nothing: it causes a warning, or with `--strict-servers` an error.
#[tokio::test]
async fn a_server_that_is_away_is_a_warning_or_an_error() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = engine(&home, "s").await?;
    let (gone, away) = engine(&home, "away").await?;
    drop(gone);

    let ended = home.runs(&format!("--connect {address},{away} l"), "echo ran")?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), "ran\n"), "{ended:?}");
    assert!(ended.stderr.contains("whether the servers are one service"), "{ended:?}");
    assert!(ended.stderr.contains(&away), "{ended:?}");

    let strict = format!("--strict-servers --connect {address},{away}");
    let ended = home.runs(&format!("{strict} l"), "echo ran")?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(75), ""), "{ended:?}");
    Ok(())
}
