//! Access control: who a client is, what a list allows, and which lists are acceptable.

mod entry;
mod list;

use std::collections::HashSet;
use std::hash::{BuildHasher as _, Hash, Hasher};

use lockkeeper_wire::{Acl, ErrorCode, Permissions};

pub(crate) use self::entry::Identity;
use self::entry::{Range, is_anyone};
pub(crate) use self::list::AclRef;
use crate::gradual::GradualMap;
use crate::hash::QuickHash;

/// How many entries a list may have, before and after `auth` is replaced by identities. What one
/// check may cost grows with it, and what a request of a few bytes leaves on the disk.
pub(crate) const MAX_ENTRIES: usize = 1_000;

/// Fails unless `acl` gives one of these identities one of the permissions `wanted`.
///
/// However long the list, the cost grows with the number of identities only.
pub(crate) fn check(
    acl: &AclRef,
    wanted: Permissions,
    identities: &[Identity],
) -> Result<(), ErrorCode> {
    // ZooKeeper reads an empty list as no restriction; no request can create one.
    let allowed = acl.is_empty()
        || identities.iter().any(|identity| identity.scheme == "super")
        || acl.grants(wanted, identities);
    if allowed { Ok(()) } else { Err(ErrorCode::NoAuth) }
}

/// The list that a node gets when a client with these identities asks for `wanted`: without
/// repetitions, `auth` replaced by what the client has proven. It ends soon after [`MAX_ENTRIES`], and
/// is then too long to be of use.
pub(crate) fn expand(wanted: &[Acl], identities: &[Identity]) -> Result<AclRef, ErrorCode> {
    if wanted.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }

    let mut seen = HashSet::with_capacity(wanted.len());
    let mut expanded = Vec::with_capacity(wanted.len());
    for entry in wanted {
        if !seen.insert(entry) {
            continue;
        }
        if entry.scheme == "auth" {
            expand_auth(entry.permissions, identities, &mut expanded)?;
        } else if is_anyone(entry) || is_valid(entry) {
            expanded.push(entry.clone());
        } else {
            return Err(ErrorCode::InvalidAcl);
        }
        if expanded.len() > MAX_ENTRIES {
            break;
        }
    }
    Ok(expanded.into())
}

/// An address is no proof of who someone is, so `auth` never stands for it; nor does it stand for
/// the super user, who is on no list.
fn expand_auth(
    permissions: Permissions,
    identities: &[Identity],
    expanded: &mut Vec<Acl>,
) -> Result<(), ErrorCode> {
    let before = expanded.len();
    let proven = identities.iter().filter(|i| matches!(i.scheme, "digest" | "x509"));
    expanded.extend(proven.map(|who| Acl::new(permissions, who.scheme, who.id.as_str())));
    if expanded.len() == before {
        return Err(ErrorCode::InvalidAcl);
    }
    Ok(())
}

fn is_valid(entry: &Acl) -> bool {
    match entry.scheme.as_str() {
        // ZooKeeper does not count empty parts at the end.
        "digest" => entry.id.trim_end_matches(':').split(':').count() == 2,
        "ip" => Range::parse(&entry.id).is_some(),
        "x509" => is_distinguished_name(&entry.id),
        _ => false,
    }
}

/// Roughly what ZooKeeper takes: `key=value` parts between commas, none at all included.
fn is_distinguished_name(id: &str) -> bool {
    let is_part = |part: &str| {
        part.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim();
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
        })
    };

    // A comma after a backslash belongs to the value.
    let mut parts: Vec<String> = Vec::new();
    for piece in id.split([',', ';', '+']) {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => last.push_str(piece),
            _ => parts.push(piece.to_owned()),
        }
    }
    id.is_empty() || parts.iter().all(|part| is_part(part))
}

/// The list as it is shown to someone who may not administer the node.
pub(crate) fn mask_digests(acl: &[Acl]) -> Vec<Acl> {
    acl.iter()
        .map(|entry| match entry.id.split_once(':') {
            Some((user, _)) if entry.scheme == "digest" => {
                Acl { id: format!("{user}:x"), ..entry.clone() }
            }
            _ => entry.clone(),
        })
        .collect()
}

/// A list with its hash, which is that of all its texts: the table hashes what it moves.
#[derive(PartialEq, Eq)]
struct Hashed {
    hash: u64,
    acl: AclRef,
}

impl Hash for Hashed {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.hash.hash(state);
    }
}

/// After how many new lists a part of all is looked through for those that nobody has.
const UNCHECKED: usize = 64;

/// Keeps one copy of each distinct list.
#[derive(Default)]
pub(crate) struct AclTable {
    lists: GradualMap<Hashed, ()>,
    hasher: QuickHash,
    /// How many lists came since unused ones were looked for.
    unchecked: usize,
    /// What the lists weigh.
    bytes: usize,
}

impl AclTable {
    /// The one copy of `acl`.
    pub(crate) fn intern(&mut self, acl: AclRef) -> AclRef {
        if acl.is_open() {
            return AclRef::open();
        }
        let key = self.hashed(&acl);
        if let Some((known, ())) = self.lists.get_key_value(&key) {
            return known.acl.clone();
        }
        self.purge_if_due();
        self.bytes += acl.weight();
        self.lists.insert(key, ());
        acl
    }

    fn hashed(&self, acl: &AclRef) -> Hashed {
        Hashed { hash: self.hasher.hash_one(acl), acl: acl.clone() }
    }

    /// Forgets a list that a node has given up, if no other has it. Whoever else still holds it for a
    /// moment leaves that to the next purge.
    pub(crate) fn release(&mut self, acl: &AclRef) {
        if acl.is_last_but_one() && self.lists.remove(&self.hashed(acl)).is_some() {
            self.bytes -= acl.weight();
        }
    }

    /// What all lists weigh, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Drops unused lists of a few hundred now and then: to look at all would keep everyone waiting.
    fn purge_if_due(&mut self) {
        self.unchecked += 1;
        if self.unchecked < UNCHECKED {
            return;
        }
        self.unchecked = 0;
        let bytes = &mut self.bytes;
        self.lists.retain_some(|list, ()| {
            let stays = list.acl.is_shared();
            *bytes -= if stays { 0 } else { list.acl.weight() };
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry(scheme: &str, id: &str) -> Acl {
        Acl::new(Permissions::ALL, scheme, id)
    }

    #[test]
    fn which_lists_are_acceptable() {
        for (scheme, id, fine) in [
            ("world", "anyone", true),
            ("world", "someone", false),
            ("digest", "user:hash", true),
            ("digest", "user:hash:", true),
            ("digest", "user", false),
            ("digest", "a:b:c", false),
            ("ip", "10.0.0.1", true),
            ("ip", "10.0.0.0/8", true),
            ("ip", "10.0.0.0/33", false),
            ("ip", "10.0.0", false),
            ("ip", "::1/128", true),
            ("x509", "CN=a", true),
            ("x509", "CN=a,O=b\\, c,1.2.3=d", true),
            ("x509", "a", false),
            ("x509", "=a", false),
            ("super", "", false),
        ] {
            let result = expand(&[entry(scheme, id)], &[]);
            assert_eq!(result.is_ok(), fine, "{scheme}:{id}");
        }
        assert_eq!(expand(&[], &[]), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn auth_stands_for_what_was_proven() {
        let ip = Identity { scheme: "ip", id: "10.0.0.1".to_owned() };
        let user = Identity { scheme: "digest", id: "u:h".to_owned() };
        let wanted = [entry("auth", ""), entry("auth", "")];
        let expanded = expand(&wanted, &[ip.clone(), user]).unwrap();
        assert_eq!(&*expanded, &[entry("digest", "u:h")]);
        assert_eq!(expand(&wanted, &[ip]), Err(ErrorCode::InvalidAcl));
    }

    #[test]
    fn digests_are_masked() {
        let masked = mask_digests(&[entry("digest", "u:h"), entry("ip", "::1")]);
        assert_eq!(masked, [entry("digest", "u:x"), entry("ip", "::1")]);
    }

    #[test]
    fn unused_lists_are_dropped() {
        let mut table = AclTable::default();
        for n in 0..1000 {
            table.intern(vec![entry("digest", &format!("u:{n}"))].into());
        }
        assert!(table.lists.len() <= 65, "{}", table.lists.len());
    }
}
