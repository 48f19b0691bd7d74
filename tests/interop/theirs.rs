//! Programs on other libraries, and where they meet clients of ours.

use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use lockkeeper::Client;
use lockkeeper_testkit::peers::{self, Peer};
use lockkeeper_testkit::process::Process;
use lockkeeper_testkit::proxy::Proxy;
use lockkeeper_testkit::zookeeper::shared_chroot;
use lockkeeper_testkit::{java, python, scratch};
use tempfile::TempDir;

/// Longer than anything takes that does not hang.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// Long enough for a machine that is busy, short enough to wait for when a program is killed.
pub(crate) const SESSION_MS: &str = "4000";

/// What a program is written in, and so which library it uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Language {
    Java,
    Python,
}

impl Language {
    /// The program of this name: `CuratorName.java` or `kazoo_name.py`.
    pub(crate) fn program(self, name: &str) -> Result<Command> {
        let interop = Path::new(env!("CARGO_MANIFEST_DIR")).join("interop");
        Ok(match self {
            Self::Java => {
                java::Program::compile(&interop.join(format!("Curator{name}.java")))?.command()
            }
            Self::Python => {
                python::command(&interop.join(format!("kazoo_{}.py", name.to_lowercase())))
            }
        })
    }
}

/// Whether the libraries and a server are installed. If not, prints a clear message.
pub(crate) fn are_ready(suite: &str, languages: &[Language]) -> bool {
    let library = |language: &Language| match language {
        Language::Java => Peer::Curator,
        Language::Python => Peer::Kazoo,
    };
    let needed: Vec<_> =
        [Peer::ZooKeeper].into_iter().chain(languages.iter().map(library)).collect();
    peers::ready(&format!("interop: {suite}"), &needed)
}

/// A node on a real ZooKeeper that no other test uses.
pub(crate) struct Place {
    pub(crate) connect: String,
    /// A client of ours. No wait of a test outlasts its session, nor does a compiler, which holds up
    /// heartbeats too.
    pub(crate) client: Client,
}

impl Place {
    /// `None` if not all is here, see [`are_ready`].
    pub(crate) async fn with(suite: &str, languages: &[Language]) -> Result<Option<Self>> {
        if !are_ready(suite, languages) {
            return Ok(None);
        }
        let connect = shared_chroot().await?;
        let client = Client::builder().session_timeout(Duration::from_secs(30));
        let client = client.connect(&connect).await?;
        Ok(Some(Self { connect, client }))
    }

    /// A proxy to the server, and how to connect through it.
    pub(crate) async fn proxy(&self) -> Result<(Proxy, String)> {
        let (server, chroot) = self.connect.split_once('/').context("a chroot")?;
        let proxy = Proxy::start(server).await?;
        let through = format!("{}/{chroot}", proxy.address());
        Ok((proxy, through))
    }
}

/// A program that runs, in a folder of its own. It is killed on drop.
pub(crate) struct Theirs {
    pub(crate) process: Process,
    // After the program, which writes into it.
    folder: TempDir,
}

impl Theirs {
    pub(crate) fn start(language: Language, name: &str, arguments: &[&str]) -> Result<Self> {
        let folder = scratch::folder()?;
        let mut command = language.program(name)?;
        command.args(arguments).current_dir(folder.path());
        let process = Process::spawn(name, &command, folder.path())?;
        Ok(Self { process, folder })
    }

    pub(crate) async fn prints(&mut self, text: &str) -> Result<()> {
        self.process.prints(text, LIMIT).await
    }

    /// What follows this in the lines that begin with it; a half line at the end is left out.
    pub(crate) fn said(&self, begin: &str) -> Vec<String> {
        let text = self.process.stdout();
        let whole = text.rsplit_once('\n').map_or("", |(whole, _)| whole);
        whole.lines().filter_map(|line| line.strip_prefix(begin).map(str::to_owned)).collect()
    }

    /// Puts a file into its folder, all of it at once.
    pub(crate) fn leave(&self, file: &str, text: &str) -> Result<()> {
        let folder = self.folder.path();
        fs::write(folder.join("next"), text)?;
        Ok(fs::rename(folder.join("next"), folder.join(file))?)
    }

    /// Waits for its end, which must be a good one.
    pub(crate) async fn ends(&mut self) -> Result<()> {
        let ended = self.process.end(LIMIT).await?;
        ensure!(ended.success(), "{}", self.process.tail());
        Ok(())
    }

    /// The same of one that waits for the file `end`.
    pub(crate) async fn end(&mut self) -> Result<()> {
        self.leave("end", "")?;
        self.ends().await
    }
}

/// A program that takes one step after the other, each from a file `step-N`, and says what came of it.
pub(crate) struct Steps {
    pub(crate) program: Theirs,
    begun: usize,
}

impl Steps {
    pub(crate) fn start(language: Language, name: &str, arguments: &[&str]) -> Result<Self> {
        Ok(Self { program: Theirs::start(language, name, arguments)?, begun: 0 })
    }

    /// Lets it take a step, which may have to wait.
    pub(crate) fn begin(&mut self, step: &str) -> Result<()> {
        self.program.leave(&format!("step-{}", self.begun), step)?;
        self.begun += 1;
        Ok(())
    }

    /// What came of the step that it has begun.
    pub(crate) async fn done(&mut self) -> Result<String> {
        until(async || Ok(!self.waits())).await.with_context(|| self.program.process.tail())?;
        self.program.said("DONE ").pop().context("no step was begun")
    }

    pub(crate) async fn take(&mut self, step: &str) -> Result<String> {
        self.begin(step)?;
        self.done().await
    }

    /// Whether the step that it has begun has not come to its end.
    pub(crate) fn waits(&self) -> bool {
        self.program.said("DONE ").len() < self.begun
    }

    pub(crate) async fn end(mut self) -> Result<()> {
        self.begin("end")?;
        self.program.ends().await
    }
}

/// Waits until it is so.
pub(crate) async fn until(mut is_so: impl AsyncFnMut() -> Result<bool>) -> Result<()> {
    let start = Instant::now();
    while !is_so().await? {
        ensure!(start.elapsed() < LIMIT, "it takes longer than {LIMIT:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}
