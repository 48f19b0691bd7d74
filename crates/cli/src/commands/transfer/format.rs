//! The lines of an export: a header, one line for each znode, a footer. No I/O.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use lockkeeper::{Acl, Permissions, ZnodePath, Zxid};
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};

/// Identifies the first line.
const FORMAT: &str = "lockkeeper-export";

/// Incremented when an older `import` would misread a file.
const VERSION: u32 = 1;

/// The first line.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Header {
    format: String,
    version: u32,
    /// The path that was exported, with everything below it.
    pub(super) root: String,
    /// The last transaction before the first znode was read.
    pub(super) first_zxid: String,
}

/// The last line. A file without it is incomplete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Footer {
    /// The number of znodes.
    pub(super) nodes: u64,
    /// The last transaction after the last znode was read.
    pub(super) last_zxid: String,
}

/// A persistent znode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Node {
    pub(super) path: ZnodePath,
    pub(super) data: Vec<u8>,
    pub(super) acl: Vec<Acl>,
    /// The number of its children, including ephemeral ones.
    pub(super) children: u32,
}

/// A line as it is written.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct NodeLine {
    path: String,
    /// In base64.
    data: String,
    acl: Vec<AclLine>,
    children: u32,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct AclLine {
    scheme: String,
    id: String,
    perms: String,
}

/// A line after the header.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Node(Node),
    Footer(Footer),
}

impl Header {
    pub(super) fn new(root: &ZnodePath, first_zxid: Zxid) -> Self {
        let (root, first_zxid) = (root.to_string(), first_zxid.to_string());
        Self { format: FORMAT.to_owned(), version: VERSION, root, first_zxid }
    }

    pub(super) fn to_line(&self) -> String {
        line_of(self)
    }

    /// Reads the first line of a file.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        /// The fields that every version has.
        #[derive(Deserialize)]
        struct Any {
            format: String,
            version: u32,
        }

        let any: Option<Any> = serde_json::from_str(line).ok();
        let any = any.filter(|any| any.format == FORMAT);
        let any = any.ok_or("this is not a file of lockkeeper export")?;
        if any.version != VERSION {
            return Err(format!(
                "it has format version {}, but this lockkeeper reads version {VERSION}",
                any.version
            ));
        }

        let header: Self = serde_json::from_str(line).map_err(|error| because(&error))?;
        ZnodePath::new(&header.root).map_err(|error| error.to_string())?;
        zxid(&header.first_zxid)?;
        Ok(header)
    }
}

impl Footer {
    pub(super) fn new(nodes: u64, last_zxid: Zxid) -> Self {
        Self { nodes, last_zxid: last_zxid.to_string() }
    }

    pub(super) fn to_line(&self) -> String {
        line_of(self)
    }

    pub(super) fn last_zxid(&self) -> Result<Zxid, String> {
        zxid(&self.last_zxid)
    }
}

impl Node {
    pub(super) fn to_line(&self) -> String {
        let acl = self.acl.iter().map(|entry| AclLine {
            scheme: entry.scheme.clone(),
            id: entry.id.clone(),
            perms: letters(entry.permissions),
        });
        line_of(&NodeLine {
            path: self.path.to_string(),
            data: STANDARD.encode(&self.data),
            acl: acl.collect(),
            children: self.children,
        })
    }

    fn of(line: NodeLine) -> Result<Self, String> {
        let path = ZnodePath::new(&line.path).map_err(|error| error.to_string())?;
        let data = STANDARD.decode(&line.data);
        let data = data.map_err(|error| format!("{path}: the data is not base64: {error}"))?;
        if line.acl.is_empty() {
            return Err(format!("{path}: its access control list is empty"));
        }

        let acl = line.acl.into_iter().map(|entry| {
            let permissions = permissions(&entry.perms);
            let permissions = permissions.ok_or_else(|| {
                format!("{path}: {:?} contains other letters than cdrwa", entry.perms)
            })?;
            Ok(Acl { permissions, scheme: entry.scheme, id: entry.id })
        });
        let acl = acl.collect::<Result<_, String>>()?;
        Ok(Self { path, data, acl, children: line.children })
    }

    /// Whether its own list may prevent the importing user from creating its children.
    pub(super) fn is_closed(&self) -> bool {
        let everyone = self.acl.iter().filter(|entry| entry.scheme == "world");
        let is_open = |entry: &Acl| entry.permissions.contains(Permissions::CREATE);
        self.children > 0 && !everyone.into_iter().any(is_open)
    }
}

impl Line {
    /// Reads a line after the header.
    pub(super) fn read(line: &str) -> Result<Self, String> {
        // A znode has a path, and a footer does not.
        match serde_json::from_str::<NodeLine>(line) {
            Ok(node) => Node::of(node).map(Self::Node),
            Err(error) => match serde_json::from_str::<Footer>(line) {
                Ok(footer) => footer.last_zxid().map(|_| Self::Footer(footer)),
                // For an incomplete line, this is the relevant error, not the missing field.
                Err(_) => {
                    Err(because(&serde_json::from_str::<IgnoredAny>(line).err().unwrap_or(error)))
                }
            },
        }
    }
}

fn line_of(value: &impl Serialize) -> String {
    let mut text = serde_json::to_string(value).expect("texts and numbers are JSON");
    text.push('\n');
    text
}

/// Without the line number within the JSON text, which is always 1.
fn because(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let end = text.find(" at line ").unwrap_or(text.len());
    format!("{} (column {})", &text[..end], error.column())
}

/// Reads `0x1a2d0000000d`.
pub(crate) fn zxid(text: &str) -> Result<Zxid, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => i64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    };
    let number = number.filter(|number| *number >= 0);
    number.map(Zxid).ok_or_else(|| format!("{text:?} is not a zxid, such as 0x1a2d0000000d"))
}

const LETTERS: [(Permissions, char); 5] = [
    (Permissions::CREATE, 'c'),
    (Permissions::DELETE, 'd'),
    (Permissions::READ, 'r'),
    (Permissions::WRITE, 'w'),
    (Permissions::ADMIN, 'a'),
];

fn letters(permissions: Permissions) -> String {
    let has = |(one, _): &&(Permissions, char)| permissions.contains(*one);
    LETTERS.iter().filter(has).map(|(_, letter)| letter).collect()
}

fn permissions(letters: &str) -> Option<Permissions> {
    letters.chars().try_fold(Permissions::default(), |sum, letter| {
        let found = LETTERS.iter().find(|(_, known)| *known == letter);
        found.map(|(permission, _)| sum | *permission)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node() -> Node {
        let entry = |scheme: &str, id: &str, permissions| Acl {
            permissions,
            scheme: scheme.to_owned(),
            id: id.to_owned(),
        };
        Node {
            path: ZnodePath::new("/a/\u{e4}\"b").unwrap(),
            data: vec![0, 1, 255],
            acl: vec![
                entry("digest", "ann:hash=", Permissions::ALL),
                entry("world", "anyone", Permissions::READ),
            ],
            children: 3,
        }
    }

    #[test]
    fn what_is_written_is_read() {
        let line = node().to_line();
        assert!(line.ends_with('\n') && line.lines().count() == 1, "{line}");
        assert_eq!(Line::read(&line), Ok(Line::Node(node())));

        let header = Header::new(&ZnodePath::root(), Zxid(5 << 32));
        assert_eq!(Header::read(&header.to_line()), Ok(header));
        let footer = Footer::new(7, Zxid(6 << 32));
        assert_eq!(footer.last_zxid(), Ok(Zxid(6 << 32)));
        assert_eq!(Line::read(&footer.to_line()), Ok(Line::Footer(footer)));
    }

    #[test]
    fn errors_name_the_fault() {
        let line = node().to_line();
        for (old, new, why) in [
            ("/a/", "a/", "must be absolute"),
            ("AAH/", "AAH", "not base64"),
            ("\"perms\":\"r\"", "\"perms\":\"x\"", "\"x\" contains other letters"),
            ("\"children\":3", "\"kind\":3", "unknown field `kind`"),
            ("\"children\":3", "\"children\":-3", "invalid value"),
            ("}\n", "", "EOF"),
        ] {
            assert!(line.contains(old), "{old} is not in {line}");
            let error = Line::read(&line.replace(old, new)).unwrap_err();
            assert!(error.contains(why) || why == "must be absolute", "{why:?}: {error}");
        }
        let footer = Footer::new(7, Zxid(1)).to_line();
        let cut = Line::read(&footer[..footer.len() - 5]).unwrap_err();
        assert!(cut.contains("EOF"), "{cut}");
        let header = Header::new(&ZnodePath::root(), Zxid(1)).to_line();
        let newer = Header::read(&header.replace("\"version\":1", "\"version\":2"));
        assert!(newer.unwrap_err().contains("version 2"));
        assert!(Header::read("{}").unwrap_err().contains("not a file of lockkeeper export"));
        assert!(zxid("-1").is_err() && zxid("0xx").is_err() && zxid("").is_err());
        assert_eq!(zxid("0x1a2d0000000d"), zxid("28780575850509"));
    }

    #[test]
    fn permissions_are_letters() {
        for text in ["", "c", "cdrwa", "ra"] {
            assert_eq!(permissions(text).map(letters).as_deref(), Some(text));
        }
        assert_eq!(permissions("z"), None);
    }
}
