//! What a program has to itself below a chroot.

use anyhow::{Context, Result};
use lockkeeper::{
    BuildError, Client, Counter, Group, GroupError, Instance, Locks, Mutex, Names, Presence,
    Registration, ServiceDirectory, ValuePathError,
};
use lockkeeper_testkit::backend::Backend;

use crate::contract;

contract!(chroot);

/// Symptom: `/` was refused for what has its nodes below it, and so was the ordinary name `/zookeeper`.
async fn below_a_chroot_everything_is_ones_own(backend: Backend) -> Result<()> {
    let servers = format!("{}/apps/mine", backend.connect_string().trim_end_matches('/'));
    let client = Client::connect(&servers).await?;

    let group = Group::new(&client, "/")?;
    let member = group.join("one", "").await?;
    let members = group.watch().await?;
    assert_eq!(members.wait_for(1).await?.len(), 1);
    member.leave().await?;

    let claim = Names::new(&client, "/")?.try_claim("machine-1").await?;
    claim.context("it is free")?.release().await?;
    Locks::new(&client, "/")?.get("key")?.acquire().await?.release().await?;

    let instance = Instance::new("s", "one").address("::1").port(1);
    let registration = Registration::start(&client, "/", instance).await?;
    let directory = ServiceDirectory::open(&client, "/", "s").await?;
    assert_eq!(directory.instances().iter().count(), 1);
    registration.unregister().await?;

    Mutex::new(&client, "/zookeeper")?.acquire().await?.release().await?;
    Counter::new(&client, "/zookeeper/numbers")?.add(1).await?;
    Presence::builder(&client, "/zookeeper/here").start().await?.end().await?;
    // It cannot have a sibling, in which a lock keeps its delay.
    assert_eq!(Mutex::new(&client, "/").err(), Some(BuildError::Root));
    Ok(())
}

/// Symptom: locks among the servers' quotas, through a chroot.
async fn the_servers_own_is_refused_by_every_way_to_it(backend: Backend) -> Result<()> {
    let servers = backend.connect_string();
    let servers = servers.split('/').next().unwrap_or_default();
    for (chroot, inside) in [("", "/zookeeper/quota"), ("/zookeeper", "/quota")] {
        let client = Client::connect(&format!("{servers}{chroot}")).await?;
        assert!(matches!(Mutex::new(&client, inside).err(), Some(BuildError::Reserved(_))));
        assert!(matches!(Names::new(&client, inside).err(), Some(BuildError::Reserved(_))));
        assert!(matches!(Group::new(&client, inside).err(), Some(GroupError::Reserved(_))));
        assert!(matches!(Counter::new(&client, inside).err(), Some(ValuePathError::Reserved(_))));
        assert!(Presence::builder(&client, inside).start().await.is_err());
        assert!(ServiceDirectory::open(&client, inside, "s").await.is_err());
    }
    let client = crate::without_chroot(&backend).await?;
    assert!(matches!(Group::new(&client, "/").err(), Some(GroupError::Reserved(_))));
    assert_eq!(Names::new(&client, "/").err(), Some(BuildError::Root));
    Ok(())
}
