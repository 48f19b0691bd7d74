//! `docs/growing.md`: from an engine to an ensemble and back, while programs take locks all the time.
//!
//! The commands of the page are typed as they stand there, but for names: of addresses, of the
//! epoch that an export tells, of directories of ZooKeeper, and of its script, which is the test
//! kit here. `serve` is given a shorter tick besides.

mod programs;

use std::collections::BTreeMap;
use std::fs::{self, Permissions};
use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};
use bytes::Bytes;
use lockkeeper::{Acl, Client, CreateMode, DefaultAcl, ZnodePath};
use lockkeeper_testkit::checker::check;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::zookeeper::{Config, ZooKeeperEnsemble, free_ports};
use rustix::process::Signal;

use crate::page::{Step, shows, steps};
use crate::serve::served;
use crate::support::{Ended, Home, LIMIT};
use programs::{Programs, TICK, tokens_grow};

const OPERATOR: &str = "$ ";
const MEMBER: &str = "zk$ ";

/// The user name and password `super:secret`.
const SUPER: &str = "super:secret";
const SUPER_DIGEST: &str = "super:lK75jTNcA+U9vtVEw5vB51mj/w4=";

/// The epoch of the old server on the page: that of the day on which it was written.
const EPOCH: &str = "6578";

/// What is persistent, and no lock.
const APP: &str = "/app";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_on_growing_is_true_while_programs_take_locks() -> Result<()> {
    if !peers::ready("command: growing", &[Peer::ZooKeeper, Peer::Kazoo]) {
        return Ok(());
    }
    let mut reader = Reader::new().await?;
    let steps = steps("growing.md", &[OPERATOR, MEMBER])?;
    assert_eq!(steps.len(), 16, "{steps:?}");
    let (there, back) = steps.split_at(9);
    let end_of_way = |steps: &[Step]| steps.last().is_some_and(|s| s.command.contains("import"));
    assert!(end_of_way(there) && end_of_way(back), "{steps:?}");

    reader.make_app().await?;
    let app = reader.app(&reader.old())?;
    let mut programs = Programs::start(&reader.home, &reader.old())?;
    programs.go_on(&[], 2)?;
    reader.moves(there, &programs, &reader.servers()).await?;
    assert_eq!(app, reader.app(&reader.servers())?, "what is persistent is the same there");

    programs.go_on(&[], 2)?;
    reader.change_app().await?;
    let app = reader.app(&reader.servers())?;
    reader.moves(back, &programs, &reader.old()).await?;
    assert_eq!(app, reader.app(&reader.old())?, "what is persistent is the same, back again");

    programs.go_on(&[], 2)?;
    programs.end().await?;
    let history = programs.history()?;
    if let Err(why) = check(&history).and_then(|()| tokens_grow(&history)) {
        bail!("{why}\n{history}");
    }
    Ok(())
}

/// Shows that the test above can fail: the move does not wait until the old servers are drained, and the new ones lag
/// behind.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_careless_move_is_found() -> Result<()> {
    if !peers::ready("command: growing", &[Peer::Kazoo]) {
        return Ok(());
    }
    let home = Home::new()?;
    home.ends(&format!("engine floor ahead --above {}", i64::MAX >> 12))?.is_fine();
    let options =
        |name| format!("--listen 127.0.0.1:0 --quiet-time 0s --data-dir {name} --tick {TICK}");
    let (_ahead, ahead) = served(&home, "ahead", &options("ahead")).await?;
    let (_behind, behind) = served(&home, "behind", &options("behind")).await?;
    let mut programs = Programs::start(&home, &ahead)?;
    programs.go_on(&[], 1)?;
    programs.hold_on()?;
    programs.tell(&behind)?;
    programs.go_on(&["bea", "dan"], 1)?;
    programs.let_go()?;
    programs.end().await?;

    let history = programs.history()?;
    let why = check(&history).unwrap_err();
    assert!(why.contains("do not overlap\n  /orders: "), "{why}\n{history}");
    assert!(tokens_grow(&history).is_err(), "{history}");
    Ok(())
}

/// Whether programs do not reach the old servers from this step on.
fn ends_service(step: &Step) -> bool {
    step.command.ends_with("restart") || step.command.starts_with("lockkeeper serve")
}

/// Who follows the page, and what the page's names are here.
struct Reader {
    home: Home,
    ensemble: ZooKeeperEnsemble,
    /// The addresses of the page, and their values here.
    names: Vec<(String, String)>,
    /// The port for clients of each member while it is drained.
    hidden: [u16; 3],
    engine: Option<Process>,
    /// What the commands have from `export`.
    environment: Vec<(String, String)>,
    /// Ports that are known but not served, reserved so that no other program gets them.
    closed: BTreeMap<String, TcpListener>,
}

impl Reader {
    async fn new() -> Result<Self> {
        let home = Home::new()?;
        let digest = home.folder().join("admin.digest");
        fs::write(&digest, SUPER)?;
        fs::set_permissions(&digest, Permissions::from_mode(0o600))?;
        let ensemble = Config::new()
            .jvm_argument(&format!(
                "-Dzookeeper.DigestAuthenticationProvider.superDigest={SUPER_DIGEST}"
            ))
            .unstarted_ensemble(3)?;
        let [old, drained, hidden @ ..] = free_ports::<5>()?;
        let local = |port| format!("127.0.0.1:{port}");
        let mut names = vec![
            ("127.0.0.1:21810".to_owned(), local(drained)),
            ("127.0.0.1:2181".to_owned(), local(old)),
        ];
        for (number, port) in (1..).zip(hidden) {
            names.push((format!("zk{number}:21810"), local(port)));
            names.push((format!("zk{number}:2181"), ensemble.server(number - 1).connect_string()));
        }
        let mut reader = Self {
            home,
            ensemble,
            names,
            hidden,
            engine: None,
            environment: Vec::new(),
            closed: BTreeMap::new(),
        };
        reader.serve(&format!("--data-dir data --listen {}", reader.old())).await?;
        Ok(reader)
    }

    /// The name of the page's address here.
    fn here(&self, text: &str) -> String {
        let name = |text: String, (page, here): &(String, String)| text.replace(page, here);
        self.names.iter().fold(text.to_owned(), name)
    }

    fn old(&self) -> String {
        self.here("127.0.0.1:2181")
    }

    fn servers(&self) -> String {
        self.here("zk1:2181,zk2:2181,zk3:2181")
    }

    /// Follows a half of the page, with holders that hold on until they have lost their locks, and
    /// tells the programs where the servers are then.
    async fn moves(&mut self, steps: &[Step], programs: &Programs, to: &str) -> Result<()> {
        let mut holding = None;
        for step in steps {
            // Until then the old servers are in use.
            if holding.is_none() && ends_service(step) {
                holding = Some(programs.hold_on()?);
            }
            programs.note(&step.command);
            self.follow(step).await.with_context(|| step.command.clone())?;
        }
        programs.have_lost(holding.context("nobody was kept from the old servers")?)?;
        programs.tell(to)
    }

    async fn follow(&mut self, step: &Step) -> Result<()> {
        if step.prompt == MEMBER {
            return self.on_members(&step.command).await;
        }
        let command = self.here(&step.command);
        if let Some(variable) = command.strip_prefix("export ") {
            let (name, value) = variable.split_once('=').context("no value")?;
            self.environment.push((name.to_owned(), value.to_owned()));
            return Ok(());
        }
        let arguments = command.strip_prefix("lockkeeper ").context("not a command of ours")?;
        if let Some(serve) = arguments.strip_prefix("serve ") {
            return self.serve(serve.trim_end_matches(" &")).await;
        }

        let mut command = self.home.command(arguments);
        let ended = Ended::of(command.envs(self.environment.iter().cloned()))?;
        ensure!(ended.code == Some(0), "{ended:?}");
        let said = format!("{}{}", ended.stderr, ended.stdout);
        let shown: Vec<_> = step.shown.iter().map(|line| self.learn_epoch(line, &said)).collect();
        shows(&said, &shown).with_context(|| format!("{ended:?}"))?;
        // As the page says in words.
        if arguments.contains("export --drained") {
            self.stop_engine().await?;
        }
        Ok(())
    }

    /// Takes what the old server says for what the page shows.
    fn learn_epoch(&mut self, line: &str, said: &str) -> String {
        let told = said.split_once("epoch ").and_then(|(_, rest)| rest.split_once(')'));
        if let Some((epoch, _)) = told.filter(|_| line.contains(EPOCH)) {
            self.names.insert(0, (EPOCH.to_owned(), epoch.to_owned()));
        }
        self.here(line)
    }

    async fn on_members(&mut self, command: &str) -> Result<()> {
        match command {
            "zkServer.sh start" => {
                self.ensemble.restart_all().await?;
                return self.begin_above();
            }
            "zkServer.sh restart" => {
                let known = self.servers();
                self.ensemble.restart_all().await?;
                return self.close(&known);
            }
            "zkServer.sh stop" => {
                self.ensemble.kill_all();
                return Ok(());
            }
            _ => {}
        }
        for (index, port) in self.hidden.into_iter().enumerate() {
            let folder = self.ensemble.server(index).folder().to_owned();
            let path = |name| folder.join(name).to_string_lossy().into_owned();
            let command = self
                .here(command)
                .replace("/var/lib/zookeeper", &path("data"))
                .replace("/etc/zookeeper/conf/zoo.cfg", &path("zoo.cfg"))
                .replace("21810", &port.to_string());
            let ended = Ended::of(Command::new("sh").args(["-eu", "-c", &command]))?;
            ended.is_fine();
        }
        Ok(())
    }

    /// That all are in the epoch after the one that was written for them.
    fn begin_above(&self) -> Result<()> {
        let written: u32 = self.here(EPOCH).parse()?;
        for index in 0..self.ensemble.size() {
            let folder = self.ensemble.server(index).folder().join("data/version-2");
            let current: u32 = fs::read_to_string(folder.join("currentEpoch"))?.trim().parse()?;
            ensure!(current > written, "epoch {current} after {written}");
        }
        Ok(())
    }

    /// Starts the engine, after the end of the one before.
    async fn serve(&mut self, options: &str) -> Result<()> {
        self.stop_engine().await?;
        for open in options.split_whitespace().filter(|word| word.contains(':')) {
            self.closed.remove(open);
        }
        let options = format!("{options} --tick {TICK} --super-digest {SUPER_DIGEST}");
        let (server, _) = served(&self.home, "engine", &options).await?;
        self.engine = Some(server);
        Ok(())
    }

    async fn stop_engine(&mut self) -> Result<()> {
        let Some(mut server) = self.engine.take() else { return Ok(()) };
        server.signal(Signal::TERM)?;
        ensure!(server.end(LIMIT).await?.code() == Some(0), "{}", server.tail());
        self.close(&self.old())
    }

    /// Reserves these addresses, which are no longer served.
    fn close(&mut self, addresses: &str) -> Result<()> {
        for address in addresses.split(',') {
            if self.closed.contains_key(address) {
                continue;
            }
            let listener = TcpListener::bind(address);
            let listener = listener.with_context(|| format!("{address} is served still"))?;
            self.closed.insert(address.to_owned(), listener);
        }
        Ok(())
    }

    /// What is persistent below [`APP`], as an export shows it.
    fn app(&self, servers: &str) -> Result<Vec<String>> {
        let options = format!("--connect {servers} --digest {SUPER} export {APP}");
        let ended = self.home.ends(&options)?;
        ensure!(ended.code == Some(0), "{ended:?}");
        // The first and the last line are about the whole file, and siblings are not ordered.
        let nodes = ended.stdout.lines().filter(|line| line.contains("\"path\""));
        let mut nodes: Vec<_> = nodes.map(str::to_owned).collect();
        nodes.sort_unstable();
        ensure!(nodes.len() == 5, "{ended:?}");
        Ok(nodes)
    }

    /// Persistent znodes of several lists.
    async fn make_app(&self) -> Result<()> {
        let ann = Client::builder().digest("ann", "hers").connect(&self.old()).await?;
        let open = ann.with_default_acl(&DefaultAcl::Open);
        let read = ann.with_default_acl(&DefaultAcl::Creator);
        let closed = ann.with_default_acl(&DefaultAcl::List(Acl::creator_all()));
        for (client, path, data) in [
            (&open, APP, &b""[..]),
            (&open, "/app/limits", b"\x00\xff\n"),
            (&read, "/app/team", b"ann's"),
            (&closed, "/app/team/secret", b"1"),
            (&closed, "/app/team/secret/deep", b"2"),
        ] {
            let data = Bytes::copy_from_slice(data);
            client.create(&ZnodePath::new(path)?, data, CreateMode::Persistent).await?;
        }
        ann.close().await;
        Ok(())
    }

    /// Programs write on the new servers, too.
    async fn change_app(&self) -> Result<()> {
        let ann = Client::builder().digest("ann", "hers").connect(&self.servers()).await?;
        ann.set_data(&ZnodePath::new("/app/team")?, "changed", None).await?;
        ann.close().await;
        Ok(())
    }
}
