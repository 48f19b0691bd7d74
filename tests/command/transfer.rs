//! `export` and `import`: what is persistent, from one service to another.

use std::fs;
use std::os::unix::fs::PermissionsExt;

use anyhow::{Context, Result};
use bytes::Bytes;
use lockkeeper::{Acl, Client, CreateMode, DefaultAcl, ZnodePath};
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper;
use serde_json::Value;

use crate::serve::{SERVER, served};
use crate::support::{Ended, Home, LIMIT, has_all};

/// The user name and password `super:secret`.
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// Two servers that know nothing of each other: the second has larger numbers.
struct Pair {
    home: Home,
    _servers: [Process; 2],
    old: String,
    new: String,
}

impl Pair {
    async fn new() -> Result<Self> {
        let home = Home::new()?;
        let options = |name: &str| {
            format!("{SERVER} --data-dir {name} --super-digest {SUPER_DIGEST} --quiet-time 0s")
        };
        let (first, old) = served(&home, "old", &options("old")).await?;
        home.ends(&format!("engine floor new --above {}", i64::MAX >> 12))?.is_fine();
        let (second, new) = served(&home, "new", &options("new")).await?;
        Ok(Self { home, _servers: [first, second], old, new })
    }

    fn ends(&self, server: &str, arguments: &str) -> Result<Ended> {
        self.home.ends(&format!("--connect {server} {arguments}"))
    }

    /// The lines of an export, without those about the whole.
    fn exported(&self, server: &str, options: &str) -> Result<Vec<Value>> {
        let ended = self.ends(server, &format!("{options} export"))?;
        assert_eq!(ended.code, Some(0), "{ended:?}");
        let lines: Vec<&str> = ended.stdout.lines().collect();
        let nodes = lines.get(1..lines.len() - 1).context("too few lines")?;
        nodes.iter().map(|line| Ok(serde_json::from_str(line)?)).collect()
    }

    async fn client(&self, server: &str, digest: Option<(&str, &str)>) -> Result<Client> {
        let builder = match digest {
            Some((user, password)) => Client::builder().digest(user, password),
            None => Client::builder(),
        };
        Ok(builder.connect(server).await?)
    }
}

/// Makes persistent znodes.
async fn make(client: &Client, nodes: &[(&str, &[u8])]) -> Result<()> {
    for (path, data) in nodes {
        let data = Bytes::copy_from_slice(data);
        client.create(&ZnodePath::new(path)?, data, CreateMode::Persistent).await?;
    }
    Ok(())
}

#[tokio::test]
async fn what_was_exported_is_imported_and_only_once() -> Result<()> {
    let pair = Pair::new().await?;
    let client = pair.client(&pair.old, None).await?;
    make(&client, &[("/a", b""), ("/a/b", &[0, 255, b'\n']), ("/a/b/c", b"x"), ("/z", b"z")])
        .await?;
    client.create(&ZnodePath::new("/a/gone")?, "", CreateMode::Ephemeral).await?;

    let ended = pair.ends(&pair.old, "export --output all.jsonl")?;
    assert_eq!((ended.code, ended.stdout.as_str()), (Some(0), ""), "{ended:?}");
    assert!(ended.stderr.contains("1 ephemeral znodes were omitted"), "{ended:?}");
    let mode = fs::metadata(pair.home.folder().join("all.jsonl"))?.permissions().mode();
    assert_eq!(mode & 0o077, 0, "data and lists are nobody else's");

    let dry = pair.ends(&pair.new, "import --dry-run all.jsonl")?;
    assert_eq!(dry.stdout, "4 would be created, 1 already existed\n", "{dry:?}");
    let first = pair.ends(&pair.new, "import all.jsonl")?;
    first.is_fine();
    assert_eq!(first.stdout, "4 created, 1 already existed\n", "the dry run wrote nothing");
    let again = pair.ends(&pair.new, "import all.jsonl")?;
    assert_eq!(again.stdout, "0 created, 5 already existed\n", "{again:?}");
    assert_eq!(pair.exported(&pair.new, "")?.len(), 5);
    let c = pair.client(&pair.new, None).await?.data(&ZnodePath::new("/a/b")?).await?;
    assert_eq!(c.0.as_ref(), [0, 255, b'\n']);
    Ok(())
}

/// Below a chroot, or another path, nothing else is read or written.
#[tokio::test]
async fn a_part_moves_below_another_chroot() -> Result<()> {
    let pair = Pair::new().await?;
    let client = pair.client(&pair.old, None).await?;
    make(&client, &[("/a", b"1"), ("/a/b", b"2"), ("/a/b/c", b"3"), ("/z", b"4")]).await?;
    pair.ends(&pair.old, "export /a/b -o part.jsonl")?;
    let chroot = format!("{}/app", pair.new);
    let ended = pair.ends(&chroot, "import part.jsonl")?;
    ended.is_fine();
    assert_eq!(ended.stdout, "2 created, 0 already existed\n", "{ended:?}");
    let paths: Vec<_> = pair.exported(&pair.new, "")?.iter().map(|n| n["path"].clone()).collect();
    assert_eq!(paths, ["/", "/app", "/app/a", "/app/a/b", "/app/a/b/c"]);

    pair.ends(&pair.old, "export /none")?.complains(64, &["/none does not exist"]);
    Ok(())
}

#[tokio::test]
async fn more_than_fits_into_one_round_keeps_its_order() -> Result<()> {
    let pair = Pair::new().await?;
    let client = pair.client(&pair.old, None).await?;
    make(&client, &[("/many", b"")]).await?;
    let names: Vec<_> = (0..3_000).map(|number| format!("/many/{number}")).collect();
    let made: Vec<_> = names
        .iter()
        .map(|name| Ok(client.create(&ZnodePath::new(name)?, "d", CreateMode::Persistent)))
        .collect::<Result<_>>()?;
    for made in made {
        made.await?;
    }
    pair.ends(&pair.old, "export -o many.jsonl")?;
    let ended = pair.ends(&pair.new, "import many.jsonl")?;
    assert_eq!(ended.stdout, "3001 created, 1 already existed\n", "{ended:?}");
    Ok(())
}

/// A list may exclude the importing user. The nodes below are imported nevertheless, and are not open to others in
/// between.
#[tokio::test]
async fn access_control_lists_move_too() -> Result<()> {
    let pair = Pair::new().await?;
    let ann = pair.client(&pair.old, Some(("ann", "secret"))).await?;
    let closed = ann.with_default_acl(&DefaultAcl::List(Acl::creator_all()));
    make(&closed, &[("/team", b"t"), ("/team/locks", b""), ("/team/locks/x", b"1")]).await?;
    make(&ann, &[("/open", b"")]).await?;

    pair.ends(&pair.old, "export /team")?.complains(77, &["/team may not be read"]);
    // Others may read what ann may change, and see her list without the hash.
    pair.ends(&pair.old, "export /open")?.complains(77, &["without its hashes"]);
    let ended = pair.ends(&pair.old, "--digest ann:secret export -o lists.jsonl")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");

    pair.ends(&pair.new, "import lists.jsonl")?.complains(77, &["/team", "--digest-file"]);
    let nothing = pair.ends(&pair.new, "--digest super:secret import --dry-run lists.jsonl")?;
    assert_eq!(nothing.stdout, "4 would be created, 1 already existed\n", "{nothing:?}");
    let bob = pair.ends(&pair.new, "--digest bob:other import lists.jsonl")?;
    bob.is_fine();
    assert_eq!(bob.stdout, "4 created, 1 already existed\n", "{bob:?}");
    assert_eq!(
        pair.exported(&pair.old, "--digest ann:secret")?,
        pair.exported(&pair.new, "--digest super:secret")?,
        "bob has no place in any list"
    );

    let twice = pair.ends(&pair.new, "--digest ann:secret import lists.jsonl")?;
    assert_eq!(twice.stdout, "0 created, 5 already existed\n", "{twice:?}");
    let stranger = pair.ends(&pair.new, "--digest bob:other import lists.jsonl")?;
    assert_eq!(stranger.code, Some(77), "{stranger:?}");
    assert!(stranger.stderr.contains("/team"), "{stranger:?}");
    Ok(())
}

#[tokio::test]
async fn what_differs_is_left_unless_it_is_to_be_overwritten() -> Result<()> {
    let pair = Pair::new().await?;
    make(&pair.client(&pair.old, None).await?, &[("/a", b"old"), ("/b", b""), ("/c", b"")]).await?;
    pair.ends(&pair.old, "export -o file.jsonl")?;
    let there = pair.client(&pair.new, Some(("ann", "secret"))).await?;
    make(&there.with_default_acl(&DefaultAcl::Open), &[("/a", b"new")]).await?;
    make(&there, &[("/b", b"")]).await?;
    there.create(&ZnodePath::new("/c")?, "", CreateMode::Ephemeral).await?;

    let ended = pair.ends(&pair.new, "import file.jsonl")?;
    assert_eq!(ended.code, Some(1), "{ended:?}");
    assert_eq!(
        ended.stdout,
        "0 created, 1 already existed, 3 with differences kept (--overwrite)\n"
    );
    let parts = ["/a: other data; kept", "/b: another access control list; kept", "/c: it belongs"];
    has_all(&ended.stderr, &parts);
    assert_eq!(there.data(&ZnodePath::new("/a")?).await?.0, "new");

    let counted = pair.home.json(&format!(
        "--connect {} --digest ann:secret import --overwrite file.jsonl",
        pair.new
    ))?;
    assert_eq!(counted["overwritten"], 2, "{counted}");
    assert_eq!(counted["left"], 1, "nobody's session is ended: {counted}");
    assert_eq!(there.data(&ZnodePath::new("/a")?).await?.0, "old");
    assert_eq!(there.acl(&ZnodePath::new("/b")?).await?.0, Acl::open());
    Ok(())
}

/// Each error has the number of its line, and is reported before the first write.
#[tokio::test]
async fn what_is_no_whole_export_is_refused() -> Result<()> {
    let pair = Pair::new().await?;
    let client = pair.client(&pair.old, None).await?;
    make(&client, &[("/a", b"1"), ("/a/b", b"2")]).await?;
    pair.ends(&pair.old, "export /a -o whole.jsonl")?;
    let whole = fs::read_to_string(pair.home.folder().join("whole.jsonl"))?;
    let lines: Vec<_> = whole.lines().collect();
    assert_eq!(lines.len(), 4, "{whole}");
    let joined = |lines: &[&str]| lines.iter().map(|line| format!("{line}\n")).collect::<String>();

    for (text, line, why) in [
        (String::new(), 1, "empty"),
        ("{}\n".to_owned(), 1, "not a file of lockkeeper export"),
        (whole.replace("\"version\":1", "\"version\":9"), 1, "version 9"),
        (joined(&lines[..3]), 4, "incomplete"),
        (whole[..whole.len() - 5].to_owned(), 4, "EOF"),
        (joined(&[lines[0], lines[1], "so not", lines[3]]), 3, "expected"),
        (joined(&[lines[0], lines[1], lines[3]]), 3, "2 znodes, but there are 1"),
        (format!("{whole}{}\n", lines[1]), 5, "nothing after"),
        (whole.replace("\"/a/b\"", "\"/b\""), 3, "not below /a"),
        (whole.replace("\"/a/b\"", "\"a/b\""), 3, "a/b"),
        (whole.replace("\"Mg==\"", "\"Mg\""), 3, "base64"),
    ] {
        fs::write(pair.home.folder().join("wrong.jsonl"), &text)?;
        let place = format!("wrong.jsonl: line {line}: ");
        pair.ends(&pair.new, "import wrong.jsonl")?.complains(65, &[&place, why]);
    }
    pair.ends(&pair.new, "import none.jsonl")?.complains(64, &["none.jsonl"]);
    assert_eq!(pair.exported(&pair.new, "")?.len(), 1, "nothing was written");

    let piped = format!("cat whole.jsonl | {} --connect {} import -", program(&pair), pair.new);
    let mut shell = std::process::Command::new("sh");
    let ended = Ended::of(shell.args(["-c", &piped]).current_dir(pair.home.folder()))?;
    assert_eq!(ended.stdout, "2 created, 0 already existed\n", "{ended:?}");
    Ok(())
}

fn program(pair: &Pair) -> String {
    pair.home.command("").get_program().to_string_lossy().into_owned()
}

/// The file that was there stays if there will be no new one, and no half of one is left.
#[tokio::test]
async fn a_file_is_written_as_a_whole_or_not_at_all() -> Result<()> {
    let pair = Pair::new().await?;
    let ann = pair.client(&pair.old, Some(("ann", "secret"))).await?;
    make(&ann, &[("/a", b"1")]).await?;
    let ann = ann.with_default_acl(&DefaultAcl::List(Acl::creator_all()));
    make(&ann, &[("/secret", b"1")]).await?;
    let folder = pair.home.folder().join("out");
    fs::create_dir(&folder)?;
    fs::write(folder.join("file"), "before")?;

    let ended = pair.ends(&pair.old, "export -o out/file")?;
    assert_eq!(ended.code, Some(77), "{ended:?}");
    assert_eq!(fs::read_to_string(folder.join("file"))?, "before");
    assert_eq!(fs::read_dir(&folder)?.count(), 1, "no half of a file");
    pair.ends(&pair.old, "export -o none/file")?.complains(73, &["none/file"]);
    pair.ends(&pair.old, "export -o out")?.complains(73, &["out"]);

    let ended = pair.ends(&pair.old, "--digest ann:secret export -o out/file")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    assert_eq!(fs::read_to_string(folder.join("file"))?.lines().count(), 5);
    assert_eq!(fs::read_dir(&folder)?.count(), 1);
    Ok(())
}

/// What is held does not move, and is named. `--drained` waits until nothing is held.
#[tokio::test]
async fn held_locks_are_told_and_can_be_waited_for() -> Result<()> {
    let pair = Pair::new().await?;
    let options = format!("--connect {} jobs/nightly", pair.old);
    let mut holder = pair.home.starts("holder", &options, "echo held; exec sleep 600")?;
    holder.prints("held", LIMIT).await?;

    let ended = pair.ends(&pair.old, "export -o live.jsonl")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");
    let parts = ["/jobs/nightly is in use and is not exported: held", "pid", "1 ephemeral"];
    has_all(&ended.stderr, &parts);
    let file = fs::read_to_string(pair.home.folder().join("live.jsonl"))?;
    assert!(file.contains("/jobs/nightly\"") && !file.contains("-lock-"), "{file}");
    pair.ends(&pair.old, "export --drained 100ms -o none.jsonl")?
        .complains(1, &["/jobs/nightly/_c_", "programs still use"]);
    assert!(!pair.home.folder().join("none.jsonl").exists());

    let command = format!("--connect {} export --drained 30s -o drained.jsonl", pair.old);
    let mut export = Process::spawn("export", &pair.home.command(&command), pair.home.folder())?;
    holder.kill();
    assert!(export.end(LIMIT).await?.success(), "{}", export.tail());
    assert!(!export.stderr().contains("omitted"), "{}", export.stderr());
    assert!(pair.home.folder().join("drained.jsonl").exists());
    Ok(())
}

/// Tokens are numbers of transactions: to servers behind the old ones nothing is imported.
#[tokio::test]
async fn nothing_is_imported_where_tokens_would_shrink() -> Result<()> {
    let pair = Pair::new().await?;
    make(&pair.client(&pair.new, None).await?, &[("/a", b"1")]).await?;
    pair.ends(&pair.new, "export -o ahead.jsonl")?;
    let refused = pair.ends(&pair.old, "import ahead.jsonl")?;
    refused.complains(1, &["tokens would become smaller", "engine floor", "--tokens-may-shrink"]);
    let forced = pair.ends(&pair.old, "import --tokens-may-shrink ahead.jsonl")?;
    assert_eq!(forced.code, Some(0), "{forced:?}");
    assert_eq!(forced.stdout, "1 created, 1 already existed\n", "{forced:?}");

    // The advice: a floor from the file.
    pair.home.ends("engine floor old --above ahead.jsonl")?.complains(69, &["in use"]);
    let raised = pair.home.json("engine floor third --above ahead.jsonl")?;
    assert!(raised["floor"].as_str().is_some_and(|f| f.ends_with("third.floor")), "{raised}");
    pair.home
        .ends("engine floor third --above elsewhere")?
        .complains(64, &["not a zxid", "not a file"]);
    let options = format!("{SERVER} --data-dir third --quiet-time 0s");
    let (_third, third) = served(&pair.home, "third", &options).await?;
    pair.ends(&third, "import ahead.jsonl")?.is_fine();
    Ok(())
}

/// A floor is raised for engines that keep their data as well, also for a directory that has some.
#[tokio::test]
async fn a_raised_floor_is_above_all_tokens_of_the_directory() -> Result<()> {
    let home = Home::new()?;
    let serve = "--listen 127.0.0.1:0 --data-dir data --quiet-time 0s";
    let token = |address: &str| -> Result<i64> {
        let ended = home.runs(&format!("--connect {address} l"), "echo $LOCKKEEPER_TOKEN")?;
        Ok(ended.stdout.trim().parse()?)
    };
    let (mut server, address) = served(&home, "first", serve).await?;
    let first = token(&address)?;
    home.ends("engine floor data --above 0x7fff00000000")?.complains(69, &["in use"]);
    server.signal(rustix::process::Signal::TERM)?;
    server.end(LIMIT).await?;
    home.ends("engine floor data --above 0x7fff00000000")?.is_fine();
    // It never goes down.
    home.ends("engine floor data --above 1")?.is_fine();
    let (_server, address) = served(&home, "second", serve).await?;
    let second = token(&address)?;
    assert!(first < 0x7fff_0000_0000 && second > 0x7fff_0000_0000, "{first} {second}");

    home.ends("engine floor . --above 1")?.complains(73, &["a data directory"]);
    home.ends("engine floor x --above 0x7ffffffe00000000")?.complains(65, &["used up"]);
    Ok(())
}

#[tokio::test]
async fn zookeeper_gets_it_and_gives_it_back() -> Result<()> {
    if !peers::ready("command: transfer", &[Peer::ZooKeeper]) {
        return Ok(());
    }
    let pair = Pair::new().await?;
    let ann = pair.client(&pair.old, Some(("ann", "secret"))).await?;
    make(&ann, &[("/a", b"1"), ("/a/b", b"")]).await?;
    let closed = ann.with_default_acl(&DefaultAcl::List(Acl::creator_all()));
    make(&closed, &[("/team", b"t"), ("/team/x", b"1")]).await?;
    let ended = pair.ends(&pair.old, "--digest ann:secret export -o file.jsonl")?;
    assert_eq!(ended.code, Some(0), "{ended:?}");

    let chroot = zookeeper::shared_chroot().await?;
    pair.ends(&chroot, "import file.jsonl")?.complains(77, &["no credentials"]);
    let small = pair.ends(&chroot, "--digest ann:secret import file.jsonl")?;
    small.complains(1, &["tokens would become smaller", "acceptedEpoch"]);
    let there = pair.ends(&chroot, "--digest ann:secret import --tokens-may-shrink file.jsonl")?;
    assert_eq!(there.stdout, "4 created, 1 already existed\n", "{there:?}");
    // Above them, servers have children of their own.
    let [mut given, mut back] =
        [&chroot, &pair.old].map(|server| pair.exported(server, "--digest ann:secret"));
    for nodes in [&mut given, &mut back].into_iter().flatten() {
        nodes.retain(|node| node["path"] != "/");
    }
    assert_eq!(given?, back?);
    pair.ends(&chroot, "export /team")?.complains(77, &["/team may not be read"]);
    pair.ends(&chroot, "export /a")?.complains(77, &["without its hashes"]);
    Ok(())
}
