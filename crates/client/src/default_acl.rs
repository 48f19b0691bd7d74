//! DefaultAcl: the access control list of the znodes that a client creates.

use std::str::FromStr;
use std::sync::Arc;

use lockkeeper_wire::{Acl, Permissions};

/// The access control list of the znodes that a client creates, unless a request specifies another one.
///
/// The permissions to create and to delete a znode belong to its *parent*. So a list protects the children of
/// a znode and its data, but not the znode itself from being deleted.
///
/// As a string, the form that the command accepts: `open`, `creator`, or entries in the notation of `zkCli`,
/// separated by commas: `digest:alice:6DY5WhzOfGsWQ1XFuIyzxkpwdPo=:cdrwa,world:anyone:r`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum DefaultAcl {
    /// Everyone has all permissions.
    Open,
    /// Clients with the credentials of the creator have all permissions, and everyone may read. The server
    /// refuses it ([`ErrorCode::InvalidAcl`](crate::ErrorCode::InvalidAcl)) for a client without credentials.
    Creator,
    /// These entries. An entry of the scheme `auth` with an empty id stands for the creator.
    List(Vec<Acl>),
}

impl DefaultAcl {
    /// The entries to send.
    pub fn entries(&self) -> Vec<Acl> {
        match self {
            Self::Open => Acl::open(),
            // Waiters watch the znodes of contenders ahead of them, including those with other credentials.
            Self::Creator => [Acl::creator_all(), Acl::world(Permissions::READ)].concat(),
            Self::List(entries) => entries.clone(),
        }
    }

    /// The list in the form that requests carry: `None` for the open list.
    pub(crate) fn to_shared(&self) -> Option<Arc<[Acl]>> {
        (*self != Self::Open).then(|| self.entries().into())
    }
}

/// A string that is not a valid access control list.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{entry:?} is not a valid entry of an access control list: {why}")]
pub struct AclError {
    entry: String,
    why: &'static str,
}

impl FromStr for DefaultAcl {
    type Err = AclError;

    fn from_str(text: &str) -> Result<Self, AclError> {
        match text {
            "open" => Ok(Self::Open),
            "creator" => Ok(Self::Creator),
            entries => entries.split(',').map(entry).collect::<Result<_, _>>().map(Self::List),
        }
    }
}

/// Parses `scheme:id:permissions`. The id may contain colons.
fn entry(text: &str) -> Result<Acl, AclError> {
    let wrong = |why| AclError { entry: text.to_owned(), why };
    let form = "write open, creator, or SCHEME:ID:PERMISSIONS with commas in between";
    let (scheme, rest) = text.split_once(':').ok_or_else(|| wrong(form))?;
    let (id, letters) = rest.rsplit_once(':').ok_or_else(|| wrong(form))?;

    if scheme.is_empty() {
        return Err(wrong("the scheme is missing, such as digest, x509, ip, auth or world"));
    }
    if id.is_empty() && scheme != "auth" {
        return Err(wrong("the id is missing; only the scheme auth may omit it"));
    }

    if scheme == "digest" && !is_digest(id) {
        return Err(wrong(
            "the id of a digest must be USER:HASH, with a SHA-1 hash in base64 (28 characters)",
        ));
    }

    let mut permissions = Permissions::default();
    for letter in letters.chars() {
        permissions = permissions
            | match letter {
                'c' => Permissions::CREATE,
                'd' => Permissions::DELETE,
                'r' => Permissions::READ,
                'w' => Permissions::WRITE,
                'a' => Permissions::ADMIN,
                _ => return Err(wrong("permissions must be letters from cdrwa")),
            };
    }
    if permissions == Permissions::default() {
        return Err(wrong("the permissions are empty; use letters from cdrwa"));
    }
    Ok(Acl::new(permissions, scheme, id))
}

/// Whether a client can prove this identity. With a malformed hash it never can.
fn is_digest(id: &str) -> bool {
    id.split_once(':').is_some_and(|(_, hash)| hash.len() == 28 && hash.ends_with('='))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Symptom: a lock with such a list was unusable for every client, including its creator.
    #[test]
    fn a_hash_that_can_be_nobodys_is_refused() {
        let error = "digest:ann:foo:cdrwa".parse::<DefaultAcl>().unwrap_err();
        assert!(error.to_string().contains("28 characters"), "{error}");
        assert!("digest:ann:6DY5WhzOfGsWQ1XFuIyzxkpwdPo=:cdrwa".parse::<DefaultAcl>().is_ok());
    }

    #[test]
    fn texts_are_lists() {
        assert_eq!("open".parse(), Ok(DefaultAcl::Open));
        assert_eq!("creator".parse(), Ok(DefaultAcl::Creator));

        let id = "alice:6DY5WhzOfGsWQ1XFuIyzxkpwdPo=";
        let digest = Acl::new(Permissions::ALL, "digest", id);
        let list = [vec![digest], Acl::world(Permissions::READ), Acl::creator_all()].concat();
        let text = "digest:alice:6DY5WhzOfGsWQ1XFuIyzxkpwdPo=:cdrwa,world:anyone:r,auth::cdrwa";
        assert_eq!(text.parse(), Ok(DefaultAcl::List(list)));
    }

    #[test]
    fn what_is_no_list_is_refused() {
        let wrong = ["", "closed", "world:anyone", "world:anyone:", "world:anyone:x", ":a:r"];
        for text in wrong.into_iter().chain(["world::r", "open,creator", "auth::r,"]) {
            assert!(text.parse::<DefaultAcl>().is_err(), "{text}");
        }
    }
}
