//! Access control: identities of clients, permission checks, and validation of lists.

mod entry;
mod list;

use std::collections::HashSet;

use lockkeeper_wire::{Acl, ErrorCode, Permissions};

pub(crate) use self::entry::Identity;
use self::entry::{Range, is_anyone};
pub(crate) use self::list::{AclRef, Extent};
use crate::gradual::GradualMap;

/// The maximum length of a list, before and after `auth` is replaced by identities. It bounds the cost of one
/// check, and how much data a request of a few bytes can leave on disk.
pub(crate) const MAX_EXTENT: Extent = Extent { entries: 1_000, bytes: 256 * 1024 };

/// Fails unless `acl` gives one of these identities one of the permissions `wanted`.
///
/// The cost depends on the number of identities, not on the length of the list.
pub(crate) fn check(
    acl: &AclRef,
    wanted: Permissions,
    identities: &[Identity],
) -> Result<(), ErrorCode> {
    // ZooKeeper treats an empty list as unrestricted; requests cannot create one.
    let allowed = acl.is_empty()
        || identities.iter().any(|identity| identity.scheme == "super")
        || acl.grants(wanted, identities);
    if allowed { Ok(()) } else { Err(ErrorCode::NoAuth) }
}

/// The list that a node gets when a client with these identities requests `wanted`: without duplicates, and
/// with `auth` replaced by the client's proven identities. Processing stops soon after [`MAX_EXTENT`]; the
/// list is then too long to be accepted.
pub(crate) fn expand(wanted: &[Acl], identities: &[Identity]) -> Result<AclRef, ErrorCode> {
    if wanted.is_empty() {
        return Err(ErrorCode::InvalidAcl);
    }

    let mut seen = HashSet::with_capacity(wanted.len());
    let mut expanded = Vec::with_capacity(wanted.len());
    let mut extent = Extent::default();
    for entry in wanted {
        if !seen.insert(entry) {
            continue;
        }
        let before = expanded.len();
        if entry.scheme == "auth" {
            expand_auth(entry.permissions, identities, &mut expanded)?;
        } else if is_anyone(entry) || is_valid(entry) {
            expanded.push(entry.clone());
        } else {
            return Err(ErrorCode::InvalidAcl);
        }
        extent = extent + Extent::of(&expanded[before..]);
        if !extent.fits(MAX_EXTENT) {
            break;
        }
    }
    Ok(expanded.into())
}

/// An address does not prove an identity, so `auth` never stands for one. It does not stand for the super user
/// either, which is never listed.
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
        // ZooKeeper ignores empty parts at the end.
        "digest" => entry.id.trim_end_matches(':').split(':').count() == 2,
        "ip" => Range::parse(&entry.id).is_some(),
        "x509" => is_distinguished_name(&entry.id),
        _ => false,
    }
}

/// Approximately what ZooKeeper accepts: `key=value` parts separated by commas, including none at all.
fn is_distinguished_name(id: &str) -> bool {
    let is_part = |part: &str| {
        part.split_once('=').is_some_and(|(key, _)| {
            let key = key.trim();
            !key.is_empty() && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.')
        })
    };

    // A comma after a backslash is part of the value.
    let mut parts: Vec<String> = Vec::new();
    for piece in id.split([',', ';', '+']) {
        match parts.last_mut() {
            Some(last) if last.ends_with('\\') => last.push_str(piece),
            _ => parts.push(piece.to_owned()),
        }
    }
    id.is_empty() || parts.iter().all(|part| is_part(part))
}

/// The list as shown to clients that lack the ADMIN permission on the node.
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

/// Keeps one copy of each distinct list.
#[derive(Default)]
pub(crate) struct AclTable {
    lists: GradualMap<AclRef, ()>,
    /// The memory use of the lists, in bytes.
    bytes: usize,
}

impl AclTable {
    /// Returns the shared copy of `acl`, for one more node.
    pub(crate) fn intern(&mut self, acl: AclRef) -> AclRef {
        if acl.is_open() {
            return AclRef::open();
        }
        let acl = self.shared(acl);
        if acl.nodes() == 0 {
            self.bytes += acl.weight();
            self.lists.insert(acl.clone(), ());
        }
        acl.gain_node();
        acl
    }

    /// The shared copy of `acl`, or `acl` itself if no node has such a list.
    pub(crate) fn shared(&self, acl: AclRef) -> AclRef {
        if acl.nodes() > 0 || acl.is_open() {
            return acl;
        }
        match self.lists.get_key_value(&acl) {
            Some((known, ())) => known.clone(),
            None => acl,
        }
    }

    /// A node no longer has the list. The list is removed when no node has it.
    pub(crate) fn release(&mut self, acl: &AclRef) {
        if !acl.is_open() && acl.lose_node() {
            self.lists.remove(acl);
            self.bytes -= acl.weight();
        }
    }

    /// The memory use of all lists, in bytes.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
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

    /// While a node has the list, equal lists share one copy. Other references do not keep it in the table.
    #[test]
    fn a_list_is_kept_while_a_node_has_it() {
        let mut table = AclTable::default();
        let list = || AclRef::from(vec![entry("digest", "u:h")]);
        let (first, second) = (table.intern(list()), table.intern(list()));
        assert_eq!((table.lists.len(), table.bytes(), first.nodes()), (1, first.weight(), 2));
        table.release(&first);
        assert_eq!(table.shared(list()).nodes(), 1);
        table.release(&second);
        assert_eq!((table.lists.len(), table.bytes(), first.nodes()), (0, 0, 0));
        assert_eq!(table.intern(first).nodes(), 1, "the list is stored again");
    }
}
