//! Paths of znodes.

use std::fmt;
use std::sync::Arc;

/// An absolute path that every ZooKeeper server accepts, such as `/locks/orders`.
///
/// Cheap to clone. With the feature `serde`, it is serialized as a string.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(try_from = "String", into = "String")
)]
pub struct ZnodePath(Arc<str>);

/// Why a string is not a valid [`ZnodePath`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is not a znode path: {}", describe(.path, *.fault))]
pub struct PathError {
    path: String,
    fault: Fault,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Form(&'static str),
    Refused(char),
}

impl ZnodePath {
    /// Validates `path` by ZooKeeper's rules.
    ///
    /// # Errors
    /// If `path` does not begin with `/`; ends with `/` and is not `/` itself; has an empty, `.` or `..`
    /// segment; or contains a character that ZooKeeper rejects: control characters, private-use and
    /// unassigned code points, and everything above U+FFFF (surrogate pairs in Java).
    pub fn new(path: &str) -> Result<Self, PathError> {
        match fault(path) {
            None => Ok(Self(path.into())),
            Some(fault) => Err(PathError { path: path.to_owned(), fault }),
        }
    }

    /// Whether [`new`](Self::new) accepts `path`. Does not allocate.
    pub fn is_valid(path: &str) -> bool {
        fault(path).is_none()
    }

    /// The path `/`.
    pub fn root() -> Self {
        Self("/".into())
    }

    /// Whether this is `/`.
    pub fn is_root(&self) -> bool {
        &*self.0 == "/"
    }

    /// Whether this is `/zookeeper` or below it, where servers keep quotas and configuration.
    pub fn is_reserved(&self) -> bool {
        let rest = self.as_str().strip_prefix("/zookeeper");
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
    }

    /// The path as a string.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The last segment, or an empty string for `/`.
    pub fn name(&self) -> &str {
        self.split().1
    }

    /// The path without its last segment, or `None` for `/`.
    pub fn parent(&self) -> Option<Self> {
        match self.split() {
            _ if self.is_root() => None,
            ("", _) => Some(Self::root()),
            (parent, _) => Some(Self(parent.into())),
        }
    }

    /// The path of a child.
    ///
    /// # Errors
    /// If `name` is empty, contains `/`, or is not a valid segment.
    pub fn child(&self, name: &str) -> Result<Self, PathError> {
        let fault = if name.contains('/') {
            Some(Fault::Form("a child's name cannot contain '/'"))
        } else {
            segment_fault(name)
        };
        match fault {
            None => Ok(self.join(name)),
            Some(fault) => Err(PathError { path: self.join(name).0.to_string(), fault }),
        }
    }

    /// This path below `chroot`, as the server sees it.
    pub fn below(&self, chroot: &Self) -> Self {
        if chroot.is_root() {
            self.clone()
        } else if self.is_root() {
            chroot.clone()
        } else {
            Self([chroot.as_str(), self.as_str()].concat().into())
        }
    }

    fn join(&self, name: &str) -> Self {
        let base = if self.is_root() { "" } else { self.as_str() };
        Self([base, "/", name].concat().into())
    }

    fn split(&self) -> (&str, &str) {
        self.0.rsplit_once('/').unwrap_or(("", &self.0))
    }
}

fn fault(path: &str) -> Option<Fault> {
    if path == "/" {
        return None;
    }
    match path.strip_prefix('/') {
        None if path.is_empty() => Some(Fault::Form("it is empty")),
        None => Some(Fault::Form("it does not begin with '/'")),
        Some(rest) if rest.ends_with('/') => Some(Fault::Form("it ends with '/'")),
        Some(rest) => rest.split('/').find_map(segment_fault),
    }
}

fn segment_fault(segment: &str) -> Option<Fault> {
    match segment {
        "" => Some(Fault::Form("it has an empty segment")),
        "." | ".." => Some(Fault::Form("it has a relative segment")),
        _ if is_plain(segment) => None,
        _ if segment.contains('\0') => Some(Fault::Form("it contains a NUL character")),
        _ => segment.chars().find(|c| is_refused(*c)).map(Fault::Refused),
    }
}

/// Whether the segment is printable ASCII, as nearly all segments are. The loop has no early exit, so the
/// compiler can vectorize it.
fn is_plain(segment: &str) -> bool {
    segment.bytes().fold(true, |plain, byte| plain & matches!(byte, b' '..=b'~'))
}

fn describe(path: &str, fault: Fault) -> String {
    match fault {
        Fault::Form(what) => what.to_owned(),
        Fault::Refused(refused) => {
            let before = path.chars().take_while(|c| *c != refused).count();
            let code = u32::from(refused);
            format!("its character {} (U+{code:04X}) is not accepted by ZooKeeper", before + 1)
        }
    }
}

fn is_refused(c: char) -> bool {
    matches!(c, '\u{1}'..='\u{1f}' | '\u{7f}'..='\u{9f}' | '\u{e000}'..='\u{f8ff}' | '\u{fff0}'..)
}

impl fmt::Display for ZnodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for ZnodePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::str::FromStr for ZnodePath {
    type Err = PathError;

    fn from_str(path: &str) -> Result<Self, PathError> {
        Self::new(path)
    }
}

impl TryFrom<&str> for ZnodePath {
    type Error = PathError;

    fn try_from(path: &str) -> Result<Self, PathError> {
        Self::new(path)
    }
}

impl TryFrom<String> for ZnodePath {
    type Error = PathError;

    fn try_from(path: String) -> Result<Self, PathError> {
        Self::new(&path)
    }
}

impl From<ZnodePath> for String {
    fn from(path: ZnodePath) -> Self {
        path.as_str().to_owned()
    }
}

/// A path dereferences to its string.
impl std::ops::Deref for ZnodePath {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl AsRef<str> for ZnodePath {
    fn as_ref(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn good_paths() {
        for path in ["/", "/a", "/a/b", "/a.b/..c/d..", "/ä/日本", "/a b"] {
            assert_eq!(ZnodePath::new(path).unwrap().as_str(), path);
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn only_paths_are_read_by_serde() {
        let path = ZnodePath::new("/locks/ä b").unwrap();
        let json = serde_json::to_string(&path).unwrap();
        assert_eq!(json, "\"/locks/ä b\"");
        assert_eq!(serde_json::from_str::<ZnodePath>(&json).unwrap(), path);
        for bad in ["\"locks\"", "\"/a//b\"", "\"/a/..\"", "\"\"", "7"] {
            assert!(serde_json::from_str::<ZnodePath>(bad).is_err(), "{bad}");
        }
        let error = serde_json::from_str::<ZnodePath>("\"locks\"").unwrap_err().to_string();
        assert!(error.contains("is not a znode path"), "{error}");
    }

    #[test]
    fn bad_paths_say_what_is_wrong() {
        for (path, reason) in [
            ("", "empty"),
            ("a", "begin with"),
            ("/a/", "ends with"),
            ("//", "ends with"),
            ("/a//b", "empty segment"),
            ("/a/./b", "relative"),
            ("/..", "relative"),
            ("/a\0", "NUL"),
            ("/a\n", "character 3 (U+000A) is not accepted by ZooKeeper"),
            ("/\u{f000}", "character 2 (U+F000)"),
            ("/ä\u{1f512}/b", "character 3 (U+1F512)"),
        ] {
            let error = ZnodePath::new(path).unwrap_err().to_string();
            assert!(error.contains(reason), "{path:?}: {error}");
        }
    }

    #[test]
    fn parents_and_children() {
        let root = ZnodePath::root();
        let a = root.child("a").unwrap();
        let b = a.child("b").unwrap();
        assert_eq!(b.as_str(), "/a/b");
        assert_eq!((b.name(), a.name(), root.name()), ("b", "a", ""));
        assert_eq!(b.parent(), Some(a.clone()));
        assert_eq!(a.parent(), Some(root.clone()));
        assert_eq!(root.parent(), None);
        assert!(a.child("x/y").is_err() && a.child("").is_err() && a.child("..").is_err());
    }

    #[test]
    fn below_a_chroot() {
        let (root, app) = (ZnodePath::root(), ZnodePath::new("/app").unwrap());
        assert_eq!(app.below(&root), app);
        assert_eq!(root.below(&app), app);
        assert_eq!(app.below(&app).as_str(), "/app/app");
    }
}
