//! A file that was checked completely, before anything is written.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek};
use std::path::Path;

use lockkeeper::{ZnodePath, Zxid};

use super::format::{Footer, Header, Line, Node};
use super::walk::RESERVED;
use crate::shared::exit::{Exit, Failure};

/// The longest line: a megabyte of data in base64, and a list that is as long as the data may be.
const MAX_LINE_BYTES: u64 = 8 * 1024 * 1024;

/// A file of `export` whose lines are all valid.
#[derive(Debug)]
pub(super) struct ImportSource {
    name: String,
    file: File,
    root: ZnodePath,
    footer: Footer,
    /// A znode with children whose list does not allow everyone to create them.
    closed: Option<ZnodePath>,
}

impl ImportSource {
    /// Opens a file, or standard input (`-`), and reads it completely.
    #[expect(clippy::disallowed_methods, reason = "the user names the file")]
    pub(super) fn open(name: &Path) -> Result<Self, Failure> {
        let is_stdin = name.as_os_str() == "-";
        let (name, file) = match is_stdin {
            true => ("standard input".to_owned(), spooled()),
            false => (name.display().to_string(), File::open(name)),
        };
        let file = file.map_err(|error| unreadable(&name, &error))?;
        if file.metadata().is_ok_and(|found| found.is_dir()) {
            return Err(unreadable(&name, &io::ErrorKind::IsADirectory.into()));
        }
        check(name, file)
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The path that was exported.
    pub(super) fn root(&self) -> &ZnodePath {
        &self.root
    }

    /// A znode with children whose list does not allow everyone to create them.
    pub(super) fn closed(&self) -> Option<&ZnodePath> {
        self.closed.as_ref()
    }

    /// The upper bound of all tokens that the old servers had issued when the export ended.
    pub(super) fn last_zxid(&self) -> Result<Zxid, Failure> {
        self.footer.last_zxid().map_err(|why| Failure::new(Exit::Data, why))
    }

    /// The znodes, in order, with their line numbers.
    pub(super) fn nodes(
        &mut self,
    ) -> Result<impl Iterator<Item = Result<(u64, Node), Failure>>, Failure> {
        let mut lines = Lines::of(self.name.clone(), &mut self.file)?;
        lines.header()?;
        let nodes = std::iter::from_fn(move || match lines.next_line() {
            Ok(Some(Line::Node(node))) => Some(Ok((lines.number, node))),
            Ok(_) => None,
            Err(failure) => Some(Err(failure)),
        });
        Ok(nodes)
    }
}

/// The last transaction that an export contains.
pub(crate) fn zxid_of_file(name: &Path) -> Result<Zxid, Failure> {
    ImportSource::open(name)?.last_zxid()
}

fn check(name: String, mut file: File) -> Result<ImportSource, Failure> {
    let mut lines = Lines::of(name.clone(), &mut file)?;
    let header = lines.header()?;
    let root = ZnodePath::new(&header.root).map_err(|error| lines.wrong(error.to_string()))?;

    let (mut count, mut closed) = (0, None);
    let footer = loop {
        match lines.next_line()? {
            Some(Line::Node(node)) => {
                count += 1;
                lines.belongs(&node, &root)?;
                if node.is_closed() && closed.is_none() {
                    closed = Some(node.path);
                }
            }
            Some(Line::Footer(footer)) => break footer,
            None => return Err(lines.wrong("the last line is missing: the file is incomplete")),
        }
    };
    if footer.nodes != count {
        let nodes = footer.nodes;
        return Err(lines.wrong(format!("the footer counts {nodes} znodes, but there are {count}")));
    }
    if lines.next_text()?.is_some() {
        return Err(lines.wrong("there must be nothing after the last line"));
    }
    Ok(ImportSource { name, file, root, footer, closed })
}

struct Lines<'a> {
    name: String,
    reader: BufReader<&'a mut File>,
    number: u64,
}

impl<'a> Lines<'a> {
    /// The lines of the file, from its start.
    fn of(name: String, file: &'a mut File) -> Result<Self, Failure> {
        file.rewind().map_err(|error| unreadable(&name, &error))?;
        Ok(Self { name, reader: BufReader::new(file), number: 0 })
    }

    fn header(&mut self) -> Result<Header, Failure> {
        let text = self.next_text()?;
        let text = text.ok_or_else(|| self.wrong("it is empty"))?;
        Header::read(&text).map_err(|why| self.wrong(why))
    }

    fn next_line(&mut self) -> Result<Option<Line>, Failure> {
        match self.next_text()? {
            Some(text) => Line::read(&text).map(Some).map_err(|why| self.wrong(why)),
            None => Ok(None),
        }
    }

    fn next_text(&mut self) -> Result<Option<String>, Failure> {
        self.number += 1;
        let mut bytes = Vec::new();
        let read = self.reader.by_ref().take(MAX_LINE_BYTES).read_until(b'\n', &mut bytes);
        read.map_err(|error| unreadable(&self.name, &error))?;
        if bytes.is_empty() {
            return Ok(None);
        }
        if bytes.len() as u64 == MAX_LINE_BYTES {
            return Err(self.wrong("the line is longer than any znode"));
        }
        let text = String::from_utf8(bytes);
        text.map(Some).map_err(|_| self.wrong("it is not UTF-8"))
    }

    /// Rejects a znode outside of the exported path, which an attacker may have added.
    fn belongs(&self, node: &Node, root: &ZnodePath) -> Result<(), Failure> {
        let (path, root) = (node.path.as_str(), root.as_str());
        let is_within = |above: &str| {
            path.strip_prefix(above).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        if root != "/" && !is_within(root) {
            return Err(self.wrong(format!("{path} is not below {root}")));
        }
        if is_within(RESERVED) {
            return Err(self.wrong(format!("{path} is reserved for the servers")));
        }
        Ok(())
    }

    fn wrong(&self, why: impl std::fmt::Display) -> Failure {
        let message = format!("{}: line {}: {why}", self.name, self.number);
        Failure::new(Exit::Data, message)
    }
}

fn unreadable(name: &str, error: &io::Error) -> Failure {
    Failure::new(Exit::Usage, format!("cannot read {name}: {error}"))
}

/// All of standard input, in a temporary file without a name, because it is read twice.
fn spooled() -> io::Result<File> {
    let mut file = tempfile::tempfile()?;
    io::copy(&mut io::stdin().lock(), &mut file)?;
    Ok(file)
}
