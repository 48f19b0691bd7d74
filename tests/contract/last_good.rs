//! The last known good value on disk: programs that start without servers.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    CreateMode, LastGoodError, Publication, Shared, ValueChange, ValueChanges, ValueError,
};
use lockkeeper_testkit::backend::{Backend, Participant};
use lockkeeper_testkit::scratch;
use tempfile::TempDir;

use crate::contract;

contract!(last_good);

const LIMITS: &str = "/limits";

type Limits = Vec<u32>;

/// A folder, and the file in it.
fn file() -> Result<(TempDir, PathBuf)> {
    let folder = scratch::folder()?;
    let file = folder.path().join("limits.json");
    Ok((folder, file))
}

fn limits(participant: &Participant) -> Result<Shared<Limits>> {
    Ok(Shared::new(&participant.client, LIMITS)?)
}

/// A program that has followed a value of 1, and has ended.
async fn kept(backend: &Backend, file: &Path) -> Result<Participant> {
    let alice = backend.participant().await?;
    let limits = limits(&alice)?;
    limits.set(&vec![1]).await?;
    let mut changes = limits.changes();
    assert!(!changes.keep_in(file).await?, "the file does not exist yet");
    assert!(!changes.is_current());
    assert_eq!(next(&mut changes).await?, [1]);
    assert!(changes.is_current());
    changes.kept().await?;
    Ok(alice)
}

async fn next(changes: &mut ValueChanges<Limits>) -> Result<Limits> {
    match changes.next().await? {
        ValueChange::Set(now) => Ok(now.value),
        other => panic!("{other:?}"),
    }
}

/// Follows until the value is current, without a reported change.
async fn becomes_current(changes: &mut ValueChanges<Limits>) {
    while !changes.is_current() {
        let told = tokio::time::timeout(Duration::from_secs(1), changes.next()).await;
        assert!(told.is_err(), "nothing has changed: {told:?}");
    }
}

async fn a_restored_value_is_not_told_again(backend: Backend) -> Result<()> {
    let (folder, file) = file()?;
    let alice = kept(&backend, &file).await?;
    let mode = fs::metadata(&file)?.permissions().mode();
    assert_eq!(mode & 0o7777, 0o600, "private");
    assert_eq!(fs::read_dir(&folder)?.count(), 1, "and no other file");

    let bob = backend.cut_off().await?;
    let mut changes = limits(&bob)?.changes();
    assert!(changes.keep_in(&file).await?, "restored without a server");
    assert_eq!(changes.latest().expect("restored").value, [1]);
    assert!(!changes.is_current());
    bob.proxy.restore();
    becomes_current(&mut changes).await;
    // With the revision that the servers have.
    let known = changes.latest().expect("restored").clone();
    assert_eq!(limits(&alice)?.get().await?, Some(known));

    limits(&alice)?.set(&vec![2]).await?;
    assert_eq!(next(&mut changes).await?, [2]);
    changes.kept().await?;
    let carol = backend.cut_off().await?;
    let mut changes = limits(&carol)?.changes();
    assert!(changes.keep_in(&file).await?);
    assert_eq!(changes.latest().expect("restored").value, [2]);
    Ok(())
}

async fn what_has_changed_meanwhile_is_told(backend: Backend) -> Result<()> {
    let (_folder, file) = file()?;
    let alice = kept(&backend, &file).await?;
    let (bob, carol) = (backend.cut_off().await?, backend.cut_off().await?);
    let mut theirs = limits(&bob)?.changes();
    assert!(theirs.keep_in(&file).await?);
    limits(&alice)?.set(&vec![2]).await?;
    bob.proxy.restore();
    assert_eq!(next(&mut theirs).await?, [2]);
    theirs.kept().await?;

    // A deleted value stays the last good value.
    let mut theirs = limits(&carol)?.changes();
    assert!(theirs.keep_in(&file).await?);
    alice.client.delete(limits(&alice)?.path(), None).await?;
    carol.proxy.restore();
    assert_eq!(theirs.next().await?, ValueChange::Absent);
    assert_eq!(theirs.latest().expect("restored").value, [2]);
    Ok(())
}

async fn a_node_made_anew_is_told_although_its_version_is_the_same(backend: Backend) -> Result<()> {
    let (_folder, file) = file()?;
    let alice = kept(&backend, &file).await?;
    let bob = backend.cut_off().await?;
    let mut changes = limits(&bob)?.changes();
    assert!(changes.keep_in(&file).await?);
    let path = limits(&alice)?.path().clone();
    alice.client.delete(&path, None).await?;
    alice.client.create(&path, "[3]", CreateMode::Persistent).await?;
    bob.proxy.restore();
    assert_eq!(next(&mut changes).await?, [3]);
    Ok(())
}

/// Servers that were set up anew count from the start again.
#[tokio::test]
async fn other_servers_are_believed() -> Result<()> {
    let (_folder, file) = file()?;
    // An engine that was started later has greater numbers.
    let (new, old) = (Backend::embedded().await?, Backend::embedded().await?);
    kept(&old, &file).await?;
    let bob = new.cut_off().await?;
    let mut changes = limits(&bob)?.changes();
    assert!(changes.keep_in(&file).await?);
    let restored = changes.latest().expect("restored").revision;

    let first = Shared::<Limits>::new(&new.observer().await?, LIMITS)?.set(&vec![7]).await?;
    assert!(first < restored.mzxid, "an older number");
    bob.proxy.restore();
    assert_eq!(next(&mut changes).await?, [7]);
    changes.kept().await?;
    let carol = new.cut_off().await?;
    let mut changes = limits(&carol)?.changes();
    assert!(changes.keep_in(&file).await?);
    assert_eq!(changes.latest().expect("restored").value, [7]);
    Ok(())
}

async fn a_damaged_file_is_told_and_replaced(backend: Backend) -> Result<()> {
    let (_folder, file) = file()?;
    let alice = kept(&backend, &file).await?;
    let good = fs::read(&file)?;
    for damaged in [&good[..good.len() - 5], &[&good[..], b"x"].concat(), b"{\"lockkeeper_last"] {
        fs::write(&file, damaged)?;
        let mut changes = limits(&alice)?.changes();
        let error = changes.keep_in(&file).await.expect_err("it is damaged");
        assert!(matches!(error, LastGoodError::Damaged { .. }), "{error:?}");
        assert_eq!(changes.latest(), None, "it is not used");
        assert_eq!(next(&mut changes).await?, [1]);
        changes.kept().await?;
        assert_eq!(fs::read(&file)?, good, "and replaced");
    }

    // What is a value, but none of this program's.
    let words: Shared<String> = Shared::new(&alice.client, LIMITS)?;
    let mut changes = words.changes();
    let error = changes.keep_in(&file).await.expect_err("it is a list");
    assert!(matches!(error, LastGoodError::Undecodable { .. }), "{error:?}");
    words.set(&"a".into()).await?;
    assert!(matches!(changes.next().await?, ValueChange::Set(now) if now.value == "a"));
    Ok(())
}

async fn what_others_may_write_is_told_and_left(backend: Backend) -> Result<()> {
    let (folder, file) = file()?;
    let alice = kept(&backend, &file).await?;
    let (good, link) = (fs::read(&file)?, folder.path().join("link"));
    symlink(&file, &link)?;
    let shared = folder.path().join("shared");
    fs::write(&shared, &good)?;
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o620))?;
    let pipe = folder.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, 0o600.into())?;
    let mut refused = vec![link, shared, pipe];
    if rustix::process::geteuid().is_root() {
        let others = folder.path().join("others");
        fs::write(&others, &good)?;
        std::os::unix::fs::chown(&others, Some(1), None)?;
        refused.push(others);
    }

    for file in refused {
        let before = fs::symlink_metadata(&file)?.modified()?;
        let mut changes = limits(&alice)?.changes();
        let error = changes.keep_in(&file).await.expect_err("not private");
        assert!(matches!(error, LastGoodError::NotPrivate { .. }), "{error:?}");
        assert!(error.to_string().contains(&*file.to_string_lossy()), "{error}");
        assert_eq!(changes.latest(), None, "it is not used");
        assert_eq!(next(&mut changes).await?, [1], "and it continues without the file");
        changes.kept().await?;
        assert_eq!(fs::symlink_metadata(&file)?.modified()?, before, "it is left alone");
    }
    assert_eq!(fs::read(&file)?, good);
    Ok(())
}

async fn what_is_something_else_is_told_and_left(backend: Backend) -> Result<()> {
    let (_folder, file) = file()?;
    let alice = kept(&backend, &file).await?;
    let good = fs::read(&file)?;
    let other: Shared<Limits> = Shared::new(&alice.client, "/other")?;
    other.set(&vec![9]).await?;
    let mut changes = other.changes();
    let error = changes.keep_in(&file).await.expect_err("it is that of another value");
    assert!(matches!(error, LastGoodError::OtherPath { .. }), "{error:?}");
    assert_eq!(next(&mut changes).await?, [9]);
    changes.kept().await?;
    assert_eq!(fs::read(&file)?, good);

    fs::write(&file, "my only copy")?;
    let mut changes = limits(&alice)?.changes();
    let error = changes.keep_in(&file).await.expect_err("it is something else");
    assert!(matches!(error, LastGoodError::Foreign { .. }), "{error:?}");
    assert_eq!(next(&mut changes).await?, [1]);
    changes.kept().await?;
    assert_eq!(fs::read(&file)?, b"my only copy");
    Ok(())
}

/// Symptom: it looked like a program without a value yet, and no value was ever kept.
async fn a_directory_that_is_missing_is_told(backend: Backend) -> Result<()> {
    let (folder, _) = file()?;
    let directory = folder.path().join("missing");
    let alice = backend.participant().await?;
    let limits = limits(&alice)?;
    let mut changes = limits.changes();
    let error = changes.keep_in(directory.join("limits.json")).await.expect_err("it is missing");
    assert!(error.to_string().contains(&format!("{}:", directory.display())), "{error}");

    // It may be made later.
    fs::create_dir(&directory)?;
    limits.set(&vec![1]).await?;
    assert_eq!(next(&mut changes).await?, [1]);
    changes.kept().await?;
    Ok(())
}

async fn a_disk_that_fails_is_told_and_tried_again(backend: Backend) -> Result<()> {
    let (folder, file) = file()?;
    let alice = backend.participant().await?;
    let limits = limits(&alice)?;
    let mut changes = limits.changes();
    assert!(!changes.keep_in(&file).await?);
    let away = folder.path().with_extension("away");
    fs::rename(folder.path(), &away)?;
    limits.set(&vec![1]).await?;
    assert_eq!(next(&mut changes).await?, [1], "following continues");
    let error = changes.kept().await.expect_err("the directory is away");
    assert!(matches!(error, LastGoodError::Io { .. }), "{error:?}");

    fs::rename(&away, folder.path())?;
    limits.set(&vec![2]).await?;
    assert_eq!(next(&mut changes).await?, [2]);
    changes.kept().await?;
    assert!(String::from_utf8_lossy(&fs::read(&file)?).contains("[2]"));
    Ok(())
}

async fn a_publication_is_restored(backend: Backend) -> Result<()> {
    let (_folder, file) = file()?;
    let alice = backend.participant().await?;
    let routes: Publication<String> = Publication::new(&alice.client, "/routes")?;
    let long = |letter: &str| letter.repeat(1_500_000);
    routes.publish(&long("a")).await?;
    let mut editions = routes.follow();
    assert!(!editions.keep_in(&file).await?);
    assert!(matches!(editions.next().await?, ValueChange::Set(now) if now.value == long("a")));
    assert!(editions.is_current());
    editions.kept().await?;

    let bob = backend.cut_off().await?;
    let theirs: Publication<String> = Publication::new(&bob.client, "/routes")?;
    let mut editions = theirs.follow();
    assert!(editions.keep_in(&file).await?);
    assert!(editions.latest().expect("restored").value == long("a"));
    assert!(!editions.is_current());
    bob.proxy.restore();
    let following = tokio::spawn(async move {
        let told = editions.next().await?;
        editions.kept().await.expect("it is kept");
        Ok::<_, ValueError>((told, editions))
    });
    // It is not reported again, so this is the first report.
    bob.proxy.passes(|passed| crate::gets(passed) > 0).await;
    routes.publish(&"b".to_owned()).await?;
    let (told, editions) = following.await??;
    assert!(matches!(told, ValueChange::Set(now) if now.value == "b"));
    assert!(editions.is_current());

    let carol = backend.cut_off().await?;
    let theirs: Publication<String> = Publication::new(&carol.client, "/routes")?;
    let mut editions = theirs.follow();
    assert!(editions.keep_in(&file).await?);
    assert_eq!(editions.latest().expect("restored").value, "b");
    // Back to the first one, which is a difference.
    assert_eq!(routes.rollback(1).await?, Some(3));
    carol.proxy.restore();
    assert!(matches!(editions.next().await?, ValueChange::Set(now) if now.value == long("a")));
    Ok(())
}
