//! Credentials, and the permissions on a lock.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use anyhow::Result;

use crate::serve::in_memory;
use crate::support::{Ended, Home, LIMIT, eventually, has_all};

/// A client without credentials took the lock by `revoke --force-after 0s`, and the job was ended.
///
/// Fails with lists that allow everyone everything.
#[tokio::test]
async fn a_lock_with_credentials_is_closed_to_strangers() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let connect = format!("--connect {address}");
    let ann = format!("{connect} --digest ann:secret");
    let script = "trap : TERM; echo ready; while :; do sleep 0.05; done";
    let mut holder = home.says("ready", "holder", &format!("{ann} l"), script).await?;

    for stranger in [connect.clone(), format!("{connect} --digest eve:secret")] {
        let way_out = ["not permitted", "show credentials"];
        home.ends(&format!("{stranger} revoke l"))?.complains(77, &way_out);
        home.ends(&format!("{stranger} revoke --force-after 0s l"))?.complains(77, &way_out);
        home.ends(&format!("{stranger} run -n l -- true"))?.complains(77, &way_out);
        home.ends(&format!("{stranger} show l"))?.is_fine();
    }

    home.ends(&format!("{ann} revoke --force-after 0s l"))?.is_fine();
    assert_eq!(holder.end(LIMIT).await?.code(), Some(79), "{}", holder.tail());
    Ok(())
}

/// A lock that was there before has a znode with which everyone may do everything, and so a list
/// for what is below it is of little use.
///
/// Fails without the look at the znodes above.
#[tokio::test]
async fn who_counts_on_a_list_below_an_open_znode_is_warned() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    home.runs(&format!("--connect {address} l"), "true")?.is_fine();

    let ended = home.runs(&format!("--connect {address} --digest ann:secret l"), "true")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let parts = ["does not protect it", "delete znodes below it", "change that znode's list"];
    has_all(&ended.stderr, &parts);

    let wish =
        home.runs(&format!("--connect {address} --digest ann:secret --acl open l"), "true")?;
    wish.is_fine();
    assert_eq!(wish.stderr, "", "who wants it open is not warned");
    Ok(())
}

#[tokio::test]
async fn credentials_come_from_a_file_and_go_no_further() -> Result<()> {
    let home = Home::new()?;
    let (_server, address) = in_memory(&home).await?;
    let (file, options) = (home.folder().join("digest"), format!("--connect {address}"));
    fs::write(&file, "ann:hidden-word\n")?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let ann = format!("{options} --digest-file {}", file.display());

    let script = "env; echo ready; exec sleep 600";
    let holder = home.says("ready", "holder", &format!("{ann} l"), script).await?;
    home.ends(&format!("{options} revoke l"))?.complains(77, &["show credentials"]);
    home.ends(&format!("{options} --digest ann:hidden-word revoke l"))?.is_fine();
    assert!(!holder.stdout().contains("hidden-word"), "{}", holder.stdout());
    eventually("the holder ends", || {
        Ok(home.ends(&format!("{options} wait -w 1s l"))?.code == Some(0))
    })?;

    // The command does not get what lockkeeper got in its environment.
    let mut run = home.command(&format!("{options} run m -- env"));
    let ended = crate::support::Ended::of(run.env("LOCKKEEPER_DIGEST", "ann:hidden-word"))?;
    ended.is_fine();
    assert!(ended.stdout.contains("LOCKKEEPER_TOKEN"), "{ended:?}");
    assert!(!ended.stdout.contains("hidden-word"), "{ended:?}");
    Ok(())
}

/// Symptom: with the credentials file of an outer run, an inner run could not have credentials of its own.
#[test]
fn credentials_of_an_option_go_over_those_of_a_variable() -> Result<()> {
    let home = Home::new()?;
    let ends = |variable: (&str, &str), line: &str| {
        Ended::of(home.command(line).env(variable.0, variable.1))
    };
    let shell = "printf me:secret | \"$0\" --digest-file /dev/stdin run -q l -- true";
    let program = home.command("").get_program().to_owned();
    let mut piped = std::process::Command::new("sh");
    piped.args(["-c", shell]).arg(program).env("LOCKKEEPER_HOME", home.engine());
    Ended::of(piped.env("LOCKKEEPER_SYSTEM_HOME", "none"))?.is_fine();

    let missing = ("LOCKKEEPER_DIGEST_FILE", "missing");
    ends(missing, "--digest me:secret run -q l -- true")?.is_fine();
    ends(missing, "run -q l -- true")?.complains(78, &["missing"]);
    let other = ("LOCKKEEPER_DIGEST", "me:secret");
    ends(other, "--digest-file missing run -q l -- true")?.complains(78, &["missing"]);
    // One of a run around this one, and one of the script in it.
    let mut both = home.command("run -q l -- true");
    both.env(missing.0, missing.1).env(other.0, other.1);
    Ended::of(&mut both)?.is_fine();
    home.ends("--digest me:secret --digest-file missing run -q l -- true")?
        .complains(64, &["--digest", "--digest-file", "leave one out"]);
    Ok(())
}

#[test]
fn a_file_that_has_no_credentials_is_told_and_not_shown() -> Result<()> {
    let home = Home::new()?;
    let file = home.folder().join("digest");
    let options = format!("--digest-file {} l", file.display());
    home.runs(&options, "true")?.complains(78, &["digest", "No such file"]);

    fs::write(&file, "hidden-word")?;
    for mode in [0o644, 0o640, 0o620, 0o602] {
        fs::set_permissions(&file, Permissions::from_mode(mode))?;
        home.runs(&options, "true")?
            .complains(78, &["other users can read or write", "chmod 600", "digest"]);
    }
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    let ended = home.runs(&options, "true")?;
    assert_eq!(ended.code, Some(78), "{ended:?}");
    assert!(ended.stderr.contains("user:password"), "{ended:?}");
    assert!(!ended.stderr.contains("hidden-word"), "{ended:?}");

    // K47: a second line was part of the password.
    fs::write(&file, "ann:hidden-word\nbob:hidden-word\n")?;
    let ended = home.runs(&options, "true")?;
    ended.complains(78, &["digest", "exactly one line"]);
    assert!(!ended.stderr.contains("hidden-word"), "{ended:?}");
    fs::write(&file, "ann:word\r\n")?;
    home.runs(&options, "true")?.is_fine();

    home.runs("--acl closed l", "true")?.complains(64, &["closed", "creator"]);
    home.runs("--acl creator l", "true")?
        .complains(64, &["invalid access control list", "credentials"]);
    Ok(())
}
