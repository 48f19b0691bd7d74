//! Homes that another user could have a hand in: root gives them nothing.

use std::fs::{self, Permissions};
use std::io::ErrorKind;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use lockkeeper_testkit::process::Process;

use crate::machine::{Machine, NOBODY, Who};
use crate::serve::address_of;
use crate::support::Ended;

/// What a command may ask of an engine, or leave to it.
const COMMANDS: [&str; 5] =
    ["run l -- true", "ls", "local status", "local stop", "local start --durability memory"];

/// A home in which another user listens.
struct Trap {
    home: PathBuf,
    sockets: Vec<UnixListener>,
}

impl Trap {
    fn set(home: PathBuf) -> Result<Self> {
        fs::create_dir_all(&home)?;
        let mut sockets = Vec::new();
        for name in ["engine.sock", "admin.sock"] {
            let path = home.join(name);
            let socket = UnixListener::bind(&path)?;
            socket.set_nonblocking(true)?;
            chown(path, Some(NOBODY), Some(NOBODY))?;
            sockets.push(socket);
        }
        Ok(Self { home, sockets })
    }

    #[track_caller]
    fn is_untouched(&self) {
        for socket in &self.sockets {
            let error = socket.accept().map(drop).expect_err("root has connected");
            assert_eq!(error.kind(), ErrorKind::WouldBlock);
        }
        let entries = fs::read_dir(&self.home).into_iter().flatten().count();
        assert_eq!(entries, self.sockets.len(), "root has left something");
    }
}

fn give(path: &Path) -> Result<()> {
    Ok(chown(path, Some(NOBODY), Some(NOBODY))?)
}

fn set_mode(path: &Path, mode: u32) -> Result<()> {
    Ok(fs::set_permissions(path, Permissions::from_mode(mode))?)
}

/// Runs all commands as root with this variable, and expects a refusal of each.
#[track_caller]
fn root_refuses(machine: &Machine, variable: &str, value: &Path, parts: &[&str]) -> Result<()> {
    for line in COMMANDS {
        let mut command = machine.command(Who::Root, line);
        Ended::of(command.env(variable, value))?.complains(73, parts);
    }
    Ok(())
}

/// Symptom: root's connection, and files of root's choice, were exposed to the owner of the directory.
#[test]
fn a_home_of_another_user_gets_nothing_from_root() -> Result<()> {
    let Some(machine) = Machine::new("a home of another user")? else { return Ok(()) };
    let trap = Trap::set(machine.folder().join("trap"))?;
    give(&trap.home)?;
    let parts = ["belongs to nobody", "you are root", "LOCKKEEPER_HOME"];
    root_refuses(&machine, "LOCKKEEPER_HOME", &trap.home, &parts)?;
    trap.is_untouched();

    // As `sudo -E` leaves it.
    let trap = Trap::set(machine.home(Who::Nobody).join(".local/state/lockkeeper"))?;
    let parts = ["belongs to nobody", "sudo -H"];
    root_refuses(&machine, "HOME", &machine.home(Who::Nobody), &parts)?;
    trap.is_untouched();
    Ok(())
}

#[test]
fn a_home_that_another_user_could_replace_gets_nothing_from_root() -> Result<()> {
    let Some(machine) = Machine::new("a home that could be replaced")? else { return Ok(()) };
    let open = machine.folder().join("open");
    let trap = Trap::set(open.join("home"))?;
    set_mode(&open, 0o777)?;
    root_refuses(&machine, "LOCKKEEPER_HOME", &trap.home, &["other users can write to", "0777"])?;
    set_mode(&open, 0o775)?;
    chown(&open, None, Some(NOBODY))?;
    root_refuses(&machine, "LOCKKEEPER_HOME", &trap.home, &["other users can write to", "0775"])?;
    trap.is_untouched();

    let trap = Trap::set(machine.folder().join("behind"))?;
    let link = machine.folder().join("link");
    symlink(&trap.home, &link)?;
    std::os::unix::fs::lchown(&link, Some(NOBODY), Some(NOBODY))?;
    root_refuses(&machine, "LOCKKEEPER_HOME", &link, &["link belongs to nobody"])?;
    trap.is_untouched();
    Ok(())
}

/// In a world-writable directory such as /tmp, the sticky bit protects root's directories.
#[test]
fn a_home_in_a_sticky_directory_is_good() -> Result<()> {
    let Some(machine) = Machine::new("a home in a sticky directory")? else { return Ok(()) };
    let open = machine.folder().join("open");
    fs::create_dir(&open)?;
    set_mode(&open, 0o1777)?;
    let mut command = machine.command(Who::Root, "local status");
    let status = Ended::of(command.env("LOCKKEEPER_HOME", open.join("new")))?;
    assert_eq!((status.code, status.stderr.as_str()), (Some(1), ""), "{status:?}");
    Ok(())
}

#[test]
fn a_socket_of_another_user_in_roots_home_gets_nothing() -> Result<()> {
    let Some(machine) = Machine::new("a planted socket")? else { return Ok(()) };
    let trap = Trap::set(machine.folder().join("home"))?;
    root_refuses(&machine, "LOCKKEEPER_HOME", &trap.home, &["engine.sock belongs to nobody"])?;
    trap.is_untouched();
    Ok(())
}

/// Root wrote through the links.
#[test]
fn links_in_a_home_are_not_followed() -> Result<()> {
    let Some(machine) = Machine::new("links in a home")? else { return Ok(()) };
    let target = machine.folder().join("precious");
    fs::write(&target, "as it was")?;
    for name in ["engine.log", "start.lock", "engine.sock", "admin.sock", "data"] {
        let home = machine.folder().join(format!("with-{name}"));
        fs::create_dir(&home)?;
        symlink(&target, home.join(name))?;
        root_refuses(&machine, "LOCKKEEPER_HOME", &home, &[name, "is a symbolic link"])?;
        assert_eq!(fs::read_dir(&home)?.count(), 1, "{name}");
    }
    let home = machine.folder().join("with-a-hard-link");
    fs::create_dir(&home)?;
    fs::hard_link(&target, home.join("engine.log"))?;
    root_refuses(&machine, "LOCKKEEPER_HOME", &home, &["engine.log", "one name"])?;
    assert_eq!(fs::read_to_string(&target)?, "as it was");
    Ok(())
}

#[test]
fn a_data_directory_of_others_is_refused() -> Result<()> {
    let Some(machine) = Machine::new("a data directory of others")? else { return Ok(()) };
    let home = machine.folder().join("home");
    let data = home.join("data");
    fs::create_dir_all(&data)?;
    set_mode(&data, 0o777)?;
    root_refuses(
        &machine,
        "LOCKKEEPER_HOME",
        &home,
        &["other users can write to", "data", "0777"],
    )?;
    set_mode(&data, 0o700)?;
    give(&data)?;
    root_refuses(&machine, "LOCKKEEPER_HOME", &home, &["data belongs to nobody"])?;
    assert_eq!(fs::read_dir(&data)?.count(), 0);
    Ok(())
}

/// Runs `serve` as root on this directory, and expects that it refuses it within the patience of tests.
#[track_caller]
fn root_does_not_serve(
    machine: &Machine,
    data: &Path,
    options: &str,
    parts: &[&str],
) -> Result<()> {
    let line = format!("serve --listen 127.0.0.1:0 --data-dir {} {options}", data.display());
    let serve = machine.command(Who::Root, &line);
    // One that does not refuse it serves for ever.
    let mut command = Command::new("timeout");
    command.arg("20").arg(serve.get_program()).args(serve.get_args());
    Ended::of(&mut command)?.complains(73, parts);
    Ok(())
}

/// C1: root's engine wrote over a file of root's through a link in the place of the floor, waited for a pipe,
/// read a device without an end, and gave tokens just below the largest number.
#[test]
fn what_another_user_puts_beside_a_data_directory_is_not_used() -> Result<()> {
    let Some(machine) = Machine::new("a planted floor")? else { return Ok(()) };
    let open = machine.folder().join("open");
    fs::create_dir(&open)?;
    set_mode(&open, 0o1777)?;
    let precious = machine.folder().join("precious");
    fs::write(&precious, "as it was")?;

    let refused = |name: &str, word: &str| -> Result<()> {
        let floor = open.join(format!("{name}.floor"));
        for options in ["", "--durability memory"] {
            root_does_not_serve(&machine, &open.join(name), options, &[name, word])?;
        }
        assert_eq!(fs::read_to_string(&precious)?, "as it was", "{}", floor.display());
        Ok(())
    };

    symlink(&precious, open.join("link.floor"))?;
    refused("link", "is a symbolic link")?;
    symlink(machine.folder().join("new"), open.join("dangling.floor"))?;
    refused("dangling", "is a symbolic link")?;
    assert!(!machine.folder().join("new").exists(), "a file was made elsewhere");
    symlink("/dev/zero", open.join("endless.floor"))?;
    refused("endless", "is a symbolic link")?;
    fs::hard_link(&precious, open.join("second.floor"))?;
    refused("second", "hard link")?;
    rustix::fs::mkfifoat(rustix::fs::CWD, open.join("pipe.floor"), 0o666.into())?;
    refused("pipe", "not a regular file")?;
    fs::write(open.join("given.floor"), "")?;
    give(&open.join("given.floor"))?;
    refused("given", "belongs to user")
}

/// C1: root's engine made files in a directory of another user, through links that this user had put there.
#[test]
fn root_serves_no_data_directory_of_another_user() -> Result<()> {
    let Some(machine) = Machine::new("a data directory of another user")? else { return Ok(()) };
    let precious = machine.folder().join("precious");
    fs::write(&precious, "as it was")?;

    let theirs = machine.folder().join("theirs");
    fs::create_dir(&theirs)?;
    symlink(&precious, theirs.join("acknowledged"))?;
    give(&theirs)?;
    root_does_not_serve(&machine, &theirs, "", &["theirs", "belongs to user"])?;
    assert_eq!(fs::read_dir(&theirs)?.count(), 1);
    let within = theirs.join("within");
    fs::create_dir(&within)?;
    root_does_not_serve(&machine, &within, "", &["belongs to user"])?;
    root_does_not_serve(&machine, &theirs.join("new"), "", &["belongs to user"])?;
    assert_eq!(fs::read_dir(&theirs)?.count(), 2);

    // One that other users can write to, as a volume of a container.
    for name in ["LOCK", "FORMAT.new", "commits.a", "acknowledged"] {
        let shared = machine.folder().join(format!("with-{name}"));
        fs::create_dir(&shared)?;
        set_mode(&shared, 0o777)?;
        symlink(&precious, shared.join(name))?;
        root_does_not_serve(&machine, &shared, "", &[name])?;
        assert_eq!(fs::read_to_string(&precious)?, "as it was", "{name}");
    }
    Ok(())
}

/// Attack: root's backups and restores were led to other directories of root's by links, and by directories that
/// were replaced while they ran.
#[test]
fn root_leaves_the_data_of_another_user_to_its_owner() -> Result<()> {
    let Some(machine) = Machine::new("data of another user")? else { return Ok(()) };
    let home = machine.home(Who::Nobody);
    let run = |who, line: &str| Ended::of(machine.command(who, line).current_dir(&home));
    assert_eq!(run(Who::Nobody, "run job -- true")?.code, Some(0));
    run(Who::Nobody, "local stop")?.is_fine();
    let theirs = home.join(".local/state/lockkeeper/data");
    assert_eq!(run(Who::Root, "run job -- true")?.code, Some(0));
    run(Who::Root, "local stop")?.is_fine();
    let own = machine.home(Who::Root).join(".local/state/lockkeeper/data");
    let (theirs, own) = (theirs.display(), own.display());

    let backup = machine.folder().join("backup");
    let backup = backup.display();
    run(Who::Root, &format!("engine backup {own} {backup}"))?.is_fine();
    // A link to root's own directory, in a place of the other user.
    symlink(machine.home(Who::Root).join(".local/state/lockkeeper/data"), home.join("link"))?;
    std::os::unix::fs::lchown(home.join("link"), Some(NOBODY), Some(NOBODY))?;
    let before = fs::metadata(machine.home(Who::Root).join(".local/state/lockkeeper/data"))?.ino();
    for line in [
        format!("engine check {theirs}"),
        format!("engine backup {theirs} copy"),
        format!("engine backup {own} copy"),
        format!("engine restore --quiet-time 0s {backup} new"),
        format!("engine restore --replace --quiet-time 0s {backup} {theirs}"),
        format!("engine restore --replace --quiet-time 0s {backup} link"),
        "engine check link".to_owned(),
        "engine backup link copy".to_owned(),
        "engine floor --above 0x7f0000000000 link".to_owned(),
    ] {
        run(Who::Root, &line)?.complains(73, &["belongs to user"]);
    }
    let after = fs::metadata(machine.home(Who::Root).join(".local/state/lockkeeper/data"))?.ino();
    assert_eq!(before, after);
    assert!(!home.join("copy").exists() && !home.join("new").exists());

    // An empty one would become root's, and its engine could not start.
    let place = machine.folder().join("place");
    fs::create_dir_all(place.join("data"))?;
    give(&place.join("data"))?;
    let line = format!("engine restore --quiet-time 0s {backup} {}", place.join("data").display());
    run(Who::Root, &line)?.complains(73, &["belongs to user"]);

    run(Who::Nobody, &format!("engine backup {theirs} copy"))?.is_fine();
    run(Who::Nobody, &format!("engine restore --replace --quiet-time 0s copy {theirs}"))?.is_fine();
    assert_eq!(run(Who::Nobody, "run job -- true")?.code, Some(0));
    Ok(())
}

/// The directory above may be one that is gone through and not listed.
#[test]
fn a_place_that_cannot_be_listed_is_good() -> Result<()> {
    let Some(machine) = Machine::new("a place that cannot be listed")? else { return Ok(()) };
    let place = machine.folder().join("place");
    fs::create_dir_all(place.join("data"))?;
    set_mode(&place, 0o711)?;
    give(&place.join("data"))?;
    let line = format!("serve --listen 127.0.0.1:0 --data-dir {}", place.join("data").display());
    let serve = machine.command(Who::Nobody, &line);
    let mut server = Process::spawn("server", &serve, machine.folder())?;
    address_of(&mut server)?;
    server.kill();
    Ok(())
}
