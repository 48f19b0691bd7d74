//! What a service directory promises, on every server.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use lockkeeper::{
    Acl, CacheError, Client, Contact, CreateMode, EventKind, Instance, InstanceChange, Permissions,
    RegisterError, Registration, ServiceDirectory, ZnodePath,
};
use lockkeeper_testkit::backend::Backend;
use lockkeeper_testkit::proxy::Passed;
use lockkeeper_wire::OpCode;

use crate::{Clients, Observed, contract};

contract!(directory);

pub(crate) const BASE: &str = "/services";

/// The access control list of a node that no client may read.
pub(crate) fn hidden() -> Vec<Acl> {
    let all_else = Permissions::CREATE | Permissions::DELETE | Permissions::WRITE;
    Acl::world(all_else | Permissions::ADMIN)
}

pub(crate) fn web(id: &str) -> ZnodePath {
    ZnodePath::new(&format!("{BASE}/web/{id}")).expect("a path")
}

pub(crate) fn instance(id: &str) -> Instance {
    Instance::new("web", id).address("127.0.0.1").port(80)
}

async fn put(client: &Client, instance: &Instance) -> Result<()> {
    client.ensure(&ZnodePath::new("/services/web")?, CreateMode::Container).await?;
    client.create(&web(&instance.id), instance.to_json(), CreateMode::Persistent).await?;
    Ok(())
}

async fn put_all(client: &Client, ids: &[&str]) -> Result<()> {
    for id in ids {
        put(client, &instance(id)).await?;
    }
    Ok(())
}

pub(crate) fn ids(directory: &ServiceDirectory) -> Vec<String> {
    directory.instances().iter().map(|listed| listed.id.clone()).collect()
}

/// What kind of change, and where.
pub(crate) fn told(changes: &[InstanceChange]) -> Vec<String> {
    let name = |change: &InstanceChange| match change {
        InstanceChange::Added { .. } => "added",
        InstanceChange::Updated { .. } => "updated",
        InstanceChange::Replaced { .. } => "replaced",
        InstanceChange::Removed { .. } => "removed",
        InstanceChange::Unreadable(_) => "unreadable",
        other => panic!("{other:?}"),
    };
    changes.iter().map(|change| format!("{} {}", name(change), change.node())).collect()
}

async fn all_instances_are_there_when_it_is_open(client: Client) -> Result<()> {
    put_all(&client, &["7", "8"]).await?;
    put(&client, &instance("9").weight(3).zone("b")).await?;
    // Of another service, and below an instance.
    client.create(&ZnodePath::new("/services/web2")?, "", CreateMode::Persistent).await?;
    client.create(&web("9/below"), "", CreateMode::Persistent).await?;

    let directory = ServiceDirectory::open(&client, BASE, "web").await?;
    assert_eq!(ids(&directory), ["7", "8", "9"]);
    assert!(directory.is_current() && directory.instances().unreadable().is_empty());
    let instances = directory.instances();
    let listed = instances.by_node("9").expect("it is there");
    assert_eq!(*listed.instance(), instance("9").weight(3).zone("b"));
    assert_eq!(listed.czxid(), client.data(&web("9")).await?.1.czxid);
    assert!(Arc::ptr_eq(&instances, &directory.instances()), "nothing is made anew");
    Ok(())
}

async fn a_service_that_does_not_exist_is_watched(client: Client) -> Result<()> {
    let directory = ServiceDirectory::open(&client, BASE, "web").await?;
    assert!(directory.instances().is_empty() && directory.is_current());
    let mut changes = directory.changes();
    put_all(&client, &["7"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added 7"]);
    let refused = ServiceDirectory::open(&client, BASE, "a/b").await;
    assert!(matches!(refused, Err(CacheError::Path(_))), "{refused:?}");
    Ok(())
}

/// TestServiceCacheRace: what came between the listing and the watch was missing.
///
/// Fails if changes before the first snapshot are skipped.
async fn what_comes_while_it_opens_is_in_it((participant, writer): Observed) -> Result<()> {
    put_all(&writer, &["7", "8"]).await?;
    let proxy = &participant.proxy;
    proxy.clear();
    proxy.hold_replies();
    let client = participant.client.clone();
    let opening = tokio::spawn(async move { ServiceDirectory::open(&client, BASE, "web").await });
    // It has listed the instances, and has not heard of any.
    let listed = |passed: &[Passed]| passed.contains(&Passed::Request(OpCode::GetChildren2));
    proxy.passes(listed).await;
    writer.sync(&web("7")).await?;
    put_all(&writer, &["9"]).await?;
    writer.delete(&web("7"), None).await?;
    proxy.restore();
    let directory = opening.await??;
    let mut changes = directory.changes();
    while ids(&directory) != ["8", "9"] {
        changes.next().await?;
    }
    Ok(())
}

async fn each_kind_of_change_is_told(client: Client) -> Result<()> {
    put_all(&client, &["7", "8"]).await?;
    let directory = ServiceDirectory::open(&client, BASE, "web").await?;
    let mut changes = directory.changes();

    put_all(&client, &["9"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added 9"]);
    client.set_data(&web("7"), instance("7").weight(2).to_json(), None).await?;
    let update = changes.next().await?;
    let [InstanceChange::Updated { before, now }] = &update.changes[..] else {
        panic!("{update:?}")
    };
    assert_eq!((before.weight, now.weight), (1, 2));
    let gone = client.transaction().delete(&web("8"), None);
    let anew = gone.create(&web("8"), instance("8").to_json(), CreateMode::Persistent);
    anew.commit().await?;
    assert_eq!(told(&changes.next().await?.changes), ["replaced 8"]);
    client.delete(&web("9"), None).await?;
    let update = changes.next().await?;
    assert_eq!(told(&update.changes), ["removed 9"]);
    assert!(Arc::ptr_eq(&update.instances, &directory.instances()));

    // Writing the same data again is not a change.
    client.set_data(&web("7"), instance("7").weight(2).to_json(), None).await?;
    put_all(&client, &["last"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added last"]);
    Ok(())
}

/// CURATOR-574: one node without data ended the cache of all.
async fn what_cannot_be_read_is_named_and_concerns_nobody_else(client: Client) -> Result<()> {
    put_all(&client, &["7", "8"]).await?;
    client.create(&web("empty"), "", CreateMode::Persistent).await?;
    let directory = ServiceDirectory::open(&client, BASE, "web").await?;
    assert_eq!(ids(&directory), ["7", "8"]);
    assert_eq!(unreadable(&directory), ["empty"]);

    let mut changes = directory.changes();
    client.set_data(&web("7"), "{\"id\":7", None).await?;
    let update = changes.next().await?;
    let [InstanceChange::Unreadable(named)] = &update.changes[..] else { panic!("{update:?}") };
    let reason = "its data is not the JSON of an instance: invalid type: integer `7`, expected a \
                  string at line 1 column 7";
    assert_eq!((&*named.node, &*named.reason), ("7", reason));
    assert_eq!(ids(&directory), ["7", "8"], "it stays as it was");
    put_all(&client, &["9"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added 9"]);
    client.set_data(&web("7"), instance("7").zone("b").to_json(), None).await?;
    assert_eq!(told(&changes.next().await?.changes), ["updated 7"]);
    assert_eq!(unreadable(&directory), ["empty"]);
    assert_eq!(client.data(&web("empty")).await?.1.version, 0, "and nothing is deleted");
    Ok(())
}

fn unreadable(directory: &ServiceDirectory) -> Vec<String> {
    directory.instances().unreadable().iter().map(|found| found.node.clone()).collect()
}

/// One node without the permission to read it ended the directory of all.
///
/// Fails without `skip_unreadable`.
async fn what_may_not_be_read_is_named_and_concerns_nobody_else(
    (participant, writer): Observed,
) -> Result<()> {
    let hide = async |id: &str| writer.set_acl(&web(id), hidden(), None).await;
    put_all(&writer, &["7", "8"]).await?;
    hide("8").await?;
    let directory = ServiceDirectory::open(&participant.client, BASE, "web").await?;
    assert_eq!((ids(&directory), unreadable(&directory)), (vec!["7".into()], vec!["8".into()]));

    // The others go on; one that is hidden later, and is there after a reconnect, is named.
    let mut changes = directory.changes();
    put_all(&writer, &["9"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added 9"]);
    hide("7").await?;
    participant.proxy.cut();
    let update = changes.next().await?;
    assert_eq!(told(&update.changes), ["removed 7", "unreadable 7"]);
    let reason = &update.instances.unreadable()[0].reason;
    assert!(reason.contains("access control list"), "{reason}");
    assert_eq!((ids(&directory), directory.ended()), (vec!["9".into()], None));

    // There is no event, but the instance appears nevertheless. A deleted instance soon disappears.
    writer.set_acl(&web("8"), Acl::open(), None).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added 8"]);
    writer.delete(&web("7"), None).await?;
    while !unreadable(&directory).is_empty() {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    assert_eq!(ids(&directory), ["8", "9"]);
    Ok(())
}

/// Fails without the refusal: a directory of `/` opens.
async fn the_servers_own_is_no_base(backend: Backend) -> Result<()> {
    let client = crate::without_chroot(&backend).await?;
    for base in ["/", "/zookeeper", "/zookeeper/quota"] {
        let refused = ServiceDirectory::open(&client, base, "web").await.map(drop);
        let path = ZnodePath::new(base)?;
        assert_eq!(refused, Err(CacheError::Reserved(path.clone())));
        let refused = Registration::start(&client, base, instance("7")).await.map(drop);
        assert_eq!(refused, Err(RegisterError::Reserved(path)));
    }
    let client = backend.observer().await?;
    ServiceDirectory::open(&client, "/zookeepers", "web").await?;
    Ok(())
}

async fn cut_off_it_goes_on_with_the_last_instances((participant, writer): Observed) -> Result<()> {
    put_all(&writer, &["7", "8"]).await?;
    let directory = ServiceDirectory::open(&participant.client, BASE, "web").await?;
    let mut changes = directory.changes();
    participant.proxy.refuse();
    let mut status = participant.client.status();
    status.wait_for(|status| status.contact != Contact::Connected).await?;

    writer.delete(&web("7"), None).await?;
    put_all(&writer, &["9"]).await?;
    assert!(!directory.is_current());
    assert_eq!(ids(&directory), ["7", "8"]);
    participant.proxy.restore();
    assert_eq!(told(&changes.next().await?.changes), ["removed 7", "added 9"]);
    assert_eq!(ids(&directory), ["8", "9"]);
    Ok(())
}

async fn only_what_differs_after_a_session_is_told((participant, writer): Observed) -> Result<()> {
    put_all(&writer, &["7", "8"]).await?;
    let directory = ServiceDirectory::open(&participant.client, BASE, "web").await?;
    let mut changes = directory.changes();
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    writer.set_data(&web("7"), instance("7").weight(2).to_json(), None).await?;
    assert_eq!(ids(&directory), ["7", "8"]);
    participant.proxy.restore();
    assert_eq!(told(&changes.next().await?.changes), ["updated 7"]);
    Ok(())
}

async fn a_closed_client_ends_it_and_the_instances_stay((client, writer): Clients) -> Result<()> {
    put_all(&writer, &["7"]).await?;
    let directory = ServiceDirectory::open(&client, BASE, "web").await?;
    let mut changes = directory.changes();
    client.close().await;
    assert!(matches!(changes.next().await, Err(CacheError::Request(error)) if error.is_closed()));
    assert!(directory.ended().is_some() && !directory.is_current());
    assert_eq!(ids(&directory), ["7"]);
    Ok(())
}

// ----- costs ----------------------------------------------------------------------------------

fn count(requests: &[OpCode], op: OpCode) -> usize {
    requests.iter().filter(|request| **request == op).count()
}

async fn opening_costs_a_read_for_each_instance((participant, writer): Observed) -> Result<()> {
    let names: Vec<_> = (0..100).map(|n| n.to_string()).collect();
    put_all(&writer, &names.iter().map(String::as_str).collect::<Vec<_>>()).await?;
    let proxy = &participant.proxy;
    proxy.clear();
    proxy.hold_replies();
    let client = participant.client.clone();
    let opening = tokio::spawn(async move { ServiceDirectory::open(&client, BASE, "web").await });

    // The watch, the service and its list; then the instances, nine in a request.
    for sent in [3, 3 + 12] {
        let is_request = |p: &&Passed| matches!(p, Passed::Request(op) if *op != OpCode::Ping);
        proxy.passes(|passed| passed.iter().filter(is_request).count() >= sent).await;
        assert_eq!(proxy.requests().len(), sent);
        proxy.answer();
    }
    let directory = opening.await??;
    proxy.restore();
    assert_eq!(directory.instances().len(), 100);
    let requests = proxy.requests();
    let reads = [OpCode::AddWatch, OpCode::GetData, OpCode::GetChildren2, OpCode::MultiRead];
    assert_eq!(reads.map(|op| count(&requests, op)), [1, 1 + 1, 1, 11]);
    assert_eq!(requests.len(), 15, "and nothing else");
    Ok(())
}

async fn a_change_costs_each_directory_one_event_and_one_read(
    (participant, writer): Observed,
) -> Result<()> {
    put_all(&writer, &["7", "8"]).await?;
    let directory = ServiceDirectory::open(&participant.client, BASE, "web").await?;
    let mut changes = directory.changes();
    participant.proxy.clear();
    writer.set_data(&web("7"), instance("7").weight(2).to_json(), None).await?;
    assert_eq!(told(&changes.next().await?.changes), ["updated 7"]);
    put_all(&writer, &["9"]).await?;
    assert_eq!(told(&changes.next().await?.changes), ["added 9"]);
    writer.delete(&web("8"), None).await?;
    assert_eq!(told(&changes.next().await?.changes), ["removed 8"]);

    assert_eq!(participant.proxy.requests(), [OpCode::GetData; 3]);
    // Servers before 3.9 also tell recursive watches of lists of children.
    let events = participant.proxy.events();
    let about_lists = |kind| kind == EventKind::NodeChildrenChanged;
    assert_eq!(events.iter().filter(|(kind, _)| !about_lists(*kind)).count(), 3, "{events:?}");
    Ok(())
}
