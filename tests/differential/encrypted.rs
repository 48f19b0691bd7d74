//! What certificates are good for, on both servers: identities, and lists that name them.

use anyhow::{Result, ensure};
use lockkeeper_wire::{
    Acl, CreateMode, CreateRequest, NodeData, PathRequest, Permissions, Request, Response,
    SetDataRequest,
};

use crate::certificates::{Certificates, SUBJECTS};
use crate::connection::{Connection, Incoming};
use crate::lockstep::Lockstep;
use crate::servers::Servers;
use crate::step::{Ask, Hello, Step, Who, node, read};
use crate::view::{Body, Seen};

/// Every client asks for its own identity, and for data that only one of them may read.
pub(crate) fn run(servers: &Servers, certificates: &Certificates) -> Result<()> {
    let clients = servers.credentials().len();
    let mut world = Lockstep::new(servers, clients);
    for who in 0..clients {
        world.take(&Step::Open(who, Hello { timeout_ms: 30_000, read_only: None }))?;
        take(&mut world, who, Request::WhoAmI)?;
    }
    are_as_expected(&mut world)?;

    for (i, subject) in SUBJECTS.iter().enumerate() {
        let path = format!("/of-{i}");
        let list = vec![entry("x509", subject)];
        take(&mut world, i, create(&path, list))?;
        for who in 0..clients {
            take(&mut world, who, Request::GetData(read(&path)))?;
            let set = SetDataRequest { path: path.clone(), data: NodeData::NULL, version: -1 };
            take(&mut world, who, Request::SetData(set))?;
            take(&mut world, who, Request::GetAcl(PathRequest { path: path.clone() }))?;
        }
    }
    // Lists with the client's subject, with an unknown subject, and with subjects in other spellings.
    for (i, list) in [
        Acl::creator_all(),
        vec![entry("x509", "CN=nobody")],
        vec![entry("x509", "cn=alice,o=Example")],
        vec![entry("x509", "CN=alice, O=Example")],
        vec![entry("x509", "O=Example,CN=alice")],
        vec![entry("x509", "no name at all")],
        vec![entry("x509", "")],
    ]
    .into_iter()
    .enumerate()
    {
        for who in 0..clients {
            let path = format!("/list-{i}-{who}");
            take(&mut world, who, create(&path, list.clone()))?;
            take(&mut world, who, Request::GetData(read(&path)))?;
            take(&mut world, who, Request::GetAcl(PathRequest { path }))?;
        }
    }
    strangers_are_refused(servers, certificates)
}

/// Both say the same, which could be that neither asks for certificates.
fn are_as_expected(world: &mut Lockstep) -> Result<()> {
    for (who, subject) in SUBJECTS.iter().enumerate() {
        let seen = world.both_see(who, &[Ask::Good(Request::WhoAmI)])?;
        for seen in seen {
            let Some(Seen::Reply { body: Body::Read(Response::Identities(all)), .. }) = seen.last()
            else {
                anyhow::bail!("{seen:?}");
            };
            let known = all.iter().any(|one| one.scheme == "x509" && one.user == *subject);
            ensure!(known, "{subject} is not among {all:?}");
        }
    }
    Ok(())
}

/// Neither server accepts a client with an untrusted certificate, or a connection without TLS.
fn strangers_are_refused(servers: &Servers, certificates: &Certificates) -> Result<()> {
    let stranger = certificates.stranger()?;
    for (name, address) in [("ZooKeeper", servers.zookeeper()), ("the engine", servers.engine())] {
        let mut connection = Connection::open(address, Some(&stranger))?;
        connection.send(b"srvr")?;
        ensure!(matches!(connection.next()?, Incoming::Closed), "{name} takes a stranger");
        let mut plain = Connection::open(address, None)?;
        plain.send(b"this is not TLS")?;
        ensure!(
            matches!(plain.next(), Ok(Incoming::Closed) | Err(_)),
            "{name} speaks in the clear"
        );
    }
    Ok(())
}

fn take(world: &mut Lockstep, who: Who, request: Request) -> Result<()> {
    world.take(&Step::one(who, request))
}

fn entry(scheme: &str, id: &str) -> Acl {
    Acl { permissions: Permissions::ALL, scheme: scheme.to_owned(), id: id.to_owned() }
}

fn create(path: &str, acl: Vec<Acl>) -> Request {
    Request::Create(CreateRequest { acl: acl.into(), ..node(path, CreateMode::Persistent) })
}
