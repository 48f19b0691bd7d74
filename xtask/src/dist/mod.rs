//! `cargo xtask dist`: what is handed out, in one folder, and the trials of it.
//!
//! Invariant: every file is made from the sources, the lock file and `SOURCE_DATE_EPOCH` alone, so that a second build
//! gives the same bytes.

mod archive;
mod binary;
mod debian;
mod image;
mod pages;
mod papers;
mod place;
mod publish;
mod tools;
mod trials;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};

use self::binary::Binary;
use self::papers::Papers;
use self::place::{Dist, Form};
use self::tools::{empty, run};
use crate::cargo::{command, succeeds};
use crate::setup::{self, MissingPeers, Needs};
use crate::steps::{Steps, Verdict};

/// `cargo xtask dist`
#[derive(clap::Args)]
pub(crate) struct Options {
    /// Where to put the files.
    #[arg(long, default_value = "target/packaging/out")]
    out: PathBuf,
    /// Package the debug build, and try it in minutes, as `cargo xtask test` does.
    #[arg(long)]
    thin: bool,
    /// The commit to upgrade from. The packages of it get the version 0.0.9.
    #[arg(long, default_value = FIRST, conflicts_with = "thin")]
    from: String,
    /// Only these steps. `build` makes the files; without it, those of the last run are tried.
    #[arg(value_name = "STEP", value_parser = STEPS)]
    only: Vec<String>,
}

/// All steps, in their order. Each needs those before it that build something.
const STEPS: [&str; 13] = [
    "setup",
    "build",
    "again",
    "earlier",
    "lintian",
    "unit",
    "bare-root",
    "image",
    "older",
    "attacks",
    "crates",
    "install",
    "dependency",
];

/// The last commit without packages.
const FIRST: &str = "b806e67c";

/// The version of packages to upgrade from.
const EARLIER: &str = "0.0.9";

/// Builds and tries everything.
///
/// # Errors
///
/// A step failed. All of them ran, and the table says which.
pub(crate) fn dist(options: &Options) -> Result<()> {
    let mut steps = Steps::new(|_| None);
    let form = if options.thin { Form::Thin } else { Form::Full };
    let dist = Dist::open(&options.out, form)?;
    let mut step = |name: &'static str, of: Form, run: &dyn Fn() -> Result<()>| {
        let is_wanted = match options.only.is_empty() {
            true => of == Form::Thin || form == Form::Full,
            false => options.only.iter().any(|it| it == name),
        };
        if is_wanted {
            steps.run(name, || run().map(|()| Verdict::Passed));
        }
    };

    step("setup", Form::Thin, &|| setup::run(MissingPeers::Skip, Needs::OfSuites).map(drop));
    step("build", Form::Thin, &|| dist.make());
    step("again", Form::Full, &|| dist.is_reproducible());
    step("earlier", Form::Full, &|| dist.make_earlier(&options.from));
    step("lintian", Form::Thin, &|| trials::lintian(&dist));
    step("unit", Form::Thin, &|| trials::unit(&dist));
    step("bare-root", Form::Thin, &|| trials::bare_root(&dist));
    step("image", Form::Thin, &|| trials::image(&dist));
    step("older", Form::Full, &|| trials::older_system(&dist));
    step("attacks", Form::Full, &|| trials::attacks(&dist));
    step("crates", Form::Thin, &|| publish::package(&dist));
    step("install", Form::Full, &|| publish::install(&dist));
    step("dependency", Form::Full, &|| publish::depend(&dist));

    println!("\n{steps}");
    ensure!(!steps.any_failed(), "not everything passed");
    Ok(())
}

/// The thin form, as a step of `cargo xtask test`.
///
/// # Errors
///
/// Something that was made does not work.
pub(crate) fn thin(policy: MissingPeers) -> Result<Verdict> {
    if policy == MissingPeers::Skip && !trials::can_run() {
        println!("SKIPPED: dist: needs root, and what `cargo xtask setup` installs");
        return Ok(Verdict::Skipped);
    }
    let out = PathBuf::from("target/packaging/thin");
    dist(&Options { out, thin: true, from: FIRST.to_owned(), only: Vec::new() })?;
    Ok(Verdict::Passed)
}

impl Dist {
    /// Everything that is handed out.
    fn make(&self) -> Result<()> {
        let binary = match self.form {
            Form::Full => Binary::for_older_systems(self)?,
            Form::Thin => Binary::of_debug_build(self)?,
        };
        self.assemble(&binary)?;
        fs::write(self.work.join("epoch"), &self.epoch)?;
        if self.form == Form::Thin {
            // Nothing but the version differs.
            let earlier = Self { version: EARLIER.to_owned(), ..self.beside("earlier") };
            empty(&earlier.out)?;
            debian::packages(&earlier, &binary, &Papers::write(&earlier)?)?;
        }
        Ok(())
    }

    fn assemble(&self, binary: &Binary) -> Result<()> {
        empty(&self.out)?;
        binary.write_symbols(&self.out.join(format!("lockkeeper-{}.symbols", self.version)))?;
        let papers = Papers::write(self)?;
        debian::packages(self, binary, &papers)?;
        archive::tarball(self, binary, &papers)?;
        image::write_image(self, binary, &papers)?;
        let sums =
            "cd \"$0\" && sha256sum $(ls | grep -v SHA256SUMS) > SHA256SUMS && cat SHA256SUMS";
        run(Command::new("sh").args(["-c", sums]).arg(&self.out))
    }

    /// Builds the same sources in another folder, and compares every byte.
    fn is_reproducible(&self) -> Result<()> {
        // That of the first build, which may have been made in an earlier run.
        let epoch = fs::read_to_string(self.work.join("epoch")).context("build first")?;
        let again = Dist { epoch, ..self.copy_to("again", None)? };
        again.make()?;
        let mut compare = Command::new("diff");
        compare.args(["--recursive", "--brief"]).args([&self.out, &again.out]);
        run(&mut compare).context("two builds differ; `diffoscope` shows how")
    }

    /// The packages of an earlier commit.
    fn make_earlier(&self, commit: &str) -> Result<()> {
        let mut earlier = self.copy_to("earlier", Some(commit))?;
        let manifest = earlier.sources.join("Cargo.toml");
        let text = fs::read_to_string(&manifest)?;
        let ours = format!("version = \"{}\"", self.version);
        fs::write(&manifest, text.replace(&ours, &format!("version = \"{EARLIER}\"")))?;
        let mut lock = command(&["update", "--workspace", "--offline"]);
        ensure!(succeeds(lock.current_dir(&earlier.sources))?, "cannot change the version");
        EARLIER.clone_into(&mut earlier.version);
        let binary = Binary::for_older_systems(&earlier)?;
        // The packaging files are newer than that commit.
        earlier.sources.clone_from(&self.sources);
        earlier.assemble(&binary)
    }
}
