//! Who is inside, told through files, which no lock service has a hand in.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};

/// How one contender shows that it is inside.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    state: PathBuf,
    name: String,
    permits: usize,
}

/// How it is inside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// Alone.
    Alone,
    /// With others, none of which is there alone.
    Reading,
    /// With so many others at most.
    Permitted,
}

impl Way {
    fn tag(self) -> &'static str {
        match self {
            Self::Alone => "x",
            Self::Reading => "r",
            Self::Permitted => "p",
        }
    }
}

impl Inside {
    pub(crate) fn new(state: &Path, name: &str, permits: usize) -> Self {
        Self { state: state.to_owned(), name: name.to_owned(), permits }
    }

    /// Marks the program as inside, then checks for others. Of two programs, the later one sees the other.
    pub(crate) fn enter(&self, way: Way) -> Result<()> {
        OpenOptions::new().write(true).create_new(true).open(self.file(way))?;
        self.look(way)
    }

    /// The same in another way, without being outside in between.
    pub(crate) fn change(&self, from: Way, to: Way) -> Result<()> {
        fs::rename(self.file(from), self.file(to))?;
        self.look(to)
    }

    /// Checks that no program is inside that must not be.
    pub(crate) fn look(&self, way: Way) -> Result<()> {
        let own = self.file(way);
        let mut others = everybody(&self.state)?;
        others.retain(|other| own.file_name() != Some(other.as_ref()));
        let fine = match way {
            Way::Alone => others.is_empty(),
            Way::Reading => !others.iter().any(|other| other.starts_with("x-")),
            Way::Permitted => others.len() < self.permits,
        };
        ensure!(fine, "VIOLATION {}-{} with {others:?}", way.tag(), self.name);
        Ok(())
    }

    pub(crate) fn leave(&self, way: Way) -> Result<()> {
        Ok(fs::remove_file(self.file(way))?)
    }

    /// An update that gets lost if another one is made at the same time.
    pub(crate) async fn count(&self, pause: impl Future<Output = ()>) -> Result<()> {
        let count = Self::counter(&self.state)?;
        pause.await;
        let next = self.state.join(format!("counter-{}", self.name));
        fs::write(&next, (count + 1).to_string())?;
        Ok(fs::rename(next, self.state.join("counter"))?)
    }

    pub(crate) fn log(&self, token: i64) -> Result<()> {
        let log = OpenOptions::new().create(true).append(true).open(self.state.join("log"));
        Ok(log?.write_all(format!("{token}\n").as_bytes())?)
    }

    pub(crate) fn counted(&self) -> Result<usize> {
        Self::counter(&self.state)
    }

    /// What has been counted.
    pub(crate) fn counter(state: &Path) -> Result<usize> {
        match fs::read_to_string(state.join("counter")) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(0),
            text => Ok(text?.trim().parse()?),
        }
    }

    /// Takes one that was killed out of wherever it was.
    pub(crate) fn forget(state: &Path, name: &str) -> Result<()> {
        for file in everybody(state)? {
            if file.split_once('-').is_some_and(|(_, who)| who == name) {
                fs::remove_file(state.join("inside").join(file))?;
            }
        }
        Ok(())
    }

    /// Checks that no program is inside.
    pub(crate) fn nobody(state: &Path) -> Result<()> {
        let inside = everybody(state)?;
        ensure!(inside.is_empty(), "{inside:?} are still inside");
        Ok(())
    }

    fn file(&self, way: Way) -> PathBuf {
        self.state.join("inside").join(format!("{}-{}", way.tag(), self.name))
    }
}

fn everybody(state: &Path) -> Result<Vec<String>> {
    let files = fs::read_dir(state.join("inside"))?;
    files.map(|file| Ok(file?.file_name().to_string_lossy().into_owned())).collect()
}
