//! What the registration of an instance promises, on every server.

use std::time::Duration;

use anyhow::{Result, bail};
use lockkeeper::{
    Client, CreateMode, Instance, InstanceChange, Pick, PickError, Presence, PresenceState,
    RegisterError, Registration, ServiceDirectory, ServiceType, ZnodePath, Zxid,
};
use lockkeeper_testkit::backend::Participant;
use lockkeeper_testkit::proxy::{Loss, Passed};
use lockkeeper_wire::OpCode;

use crate::directory::{BASE, ids, instance, told, web};
use crate::{Clients, Observed, contract};

contract!(registration);

async fn register(client: &Client, instance: Instance) -> Result<Registration> {
    Ok(Registration::start(client, BASE, instance).await?)
}

async fn open(client: &Client) -> Result<ServiceDirectory> {
    Ok(ServiceDirectory::open(client, BASE, "web").await?)
}

/// The next life of its node after this one.
async fn present(registration: &Registration, after: Zxid) -> Result<Zxid> {
    let mut changes = registration.changes();
    let is_later =
        |state: &PresenceState| matches!(state, PresenceState::Present { czxid } if *czxid > after);
    match changes.wait_for(is_later).await?.clone() {
        PresenceState::Present { czxid } => Ok(czxid),
        other => bail!("{other:?}"),
    }
}

async fn a_registered_instance_is_in_every_directory((client, other): Clients) -> Result<()> {
    let early = open(&other).await?;
    let mut changes = early.changes();
    let registration = register(&client, instance("7").weight(2).zone("b")).await?;
    let late = open(&other).await?;
    while ids(&early).is_empty() {
        changes.next().await?;
    }
    for directory in [early, late] {
        assert_eq!(ids(&directory), ["7"]);
        let listed = directory.instances()[0].instance().clone();
        assert_eq!(listed, registration.instance().await);
        assert_eq!((listed.weight, listed.zone.as_deref()), (2, Some("b")));
        assert!(listed.registration_time_utc > 1_700_000_000_000, "{listed:?}");
    }
    let (data, stat) = other.data(&web("7")).await?;
    assert_eq!(data, registration.instance().await.to_json());
    assert_eq!(stat.ephemeral_owner, client.session_id());
    Ok(())
}

async fn it_is_changed_in_place((client, other): Clients) -> Result<()> {
    let registration = register(&client, instance("7")).await?;
    let directory = open(&other).await?;
    let mut changes = directory.changes();
    registration.update(|instance| instance.zone = Some("b".into())).await?;
    assert_eq!(told(&changes.next().await?.changes), ["updated 7"]);
    registration.update(|instance| instance.weight = 5).await?;
    let update = changes.next().await?;
    let [InstanceChange::Updated { before, now }] = &update.changes[..] else {
        bail!("{update:?}")
    };
    assert_eq!((before.weight, now.weight, now.zone.as_deref()), (1, 5, Some("b")));
    assert_eq!(before.czxid(), now.czxid(), "it is the same node");
    assert_eq!(registration.instance().await, *now.instance());
    Ok(())
}

async fn a_drained_instance_gets_no_calls((client, other): Clients) -> Result<()> {
    let seven = register(&client, instance("7")).await?;
    let eight = register(&client, instance("8")).await?;
    let directory = open(&other).await?;
    let mut changes = directory.changes();
    let picked = |directory: &ServiceDirectory| -> Result<Vec<String>, PickError> {
        let mut ids = Vec::new();
        for _ in 0..20 {
            ids.push(directory.pick(Pick::RoundRobin)?.instance().id.clone());
        }
        ids.sort();
        ids.dedup();
        Ok(ids)
    };
    assert_eq!(picked(&directory)?, ["7", "8"]);

    seven.drain().await?;
    changes.next().await?;
    assert_eq!(picked(&directory)?, ["8"]);
    assert_eq!(ids(&directory), ["7", "8"], "it is still there");
    eight.drain().await?;
    changes.next().await?;
    assert_eq!(picked(&directory), Err(PickError::AllDrained { instances: 2 }));
    seven.undrain().await?;
    changes.next().await?;
    assert_eq!(picked(&directory)?, ["7"]);
    eight.unregister().await?;
    seven.unregister().await?;
    while !ids(&directory).is_empty() {
        changes.next().await?;
    }
    assert_eq!(picked(&directory), Err(PickError::NoInstance));
    Ok(())
}

/// Curator deletes its instances and creates them anew.
async fn a_lost_connection_makes_nobody_see_a_change((participant, other): Observed) -> Result<()> {
    let registration = register(&participant.client, instance("7")).await?;
    let before = other.data(&web("7")).await?;
    participant.proxy.clear();
    for _ in 0..3 {
        participant.proxy.cut();
        // The first may be lost with the connection.
        while participant.client.sync(&web("7")).await.is_err() {}
    }
    let writes = [OpCode::Delete, OpCode::Create, OpCode::Create2, OpCode::Multi, OpCode::SetData];
    let requests = participant.proxy.requests();
    assert!(!requests.iter().any(|request| writes.contains(request)), "{requests:?}");
    assert_eq!(other.data(&web("7")).await?, before);
    registration.unregister().await?;
    Ok(())
}

async fn it_comes_back_with_the_next_session_as_it_was_last(
    (participant, other): Observed,
) -> Result<()> {
    let registration = register(&participant.client, instance("7")).await?;
    let first = present(&registration, Zxid(0)).await?;
    registration.update(|instance| instance.weight = 2).await?;
    participant.proxy.refuse();
    participant.proxy.expire_session().await?;
    let directory = open(&other).await?;
    assert!(ids(&directory).is_empty());
    let mut changes = directory.changes();
    // Asked for while it is not there.
    let late = registration.update(|instance| instance.zone = Some("b".into()));
    let (updated, ()) = tokio::join!(late, async { participant.proxy.restore() });
    updated?;
    present(&registration, first).await?;

    let listed = loop {
        match directory.instances().first() {
            Some(listed) if listed.zone.is_some() => break listed.instance().clone(),
            _ => changes.next().await?,
        };
    };
    assert_eq!((listed.weight, listed.zone.as_deref()), (2, Some("b")));
    registration.unregister().await?;
    Ok(())
}

/// TestServiceDiscovery.testCrashedServerMultiInstances: of two instances of one client, one came back.
///
/// Fails with only the first of the presences coming back.
async fn all_instances_of_a_client_come_back_after_its_session(
    (participant, other): Observed,
) -> Result<()> {
    let mut registered = Vec::new();
    for id in ["7", "8", "9"] {
        registered.push(register(&participant.client, instance(id)).await?);
    }
    let mut lives = Vec::new();
    for registration in &registered {
        lives.push(present(registration, Zxid(0)).await?);
    }
    let directory = open(&other).await?;
    let mut changes = directory.changes();
    for _ in 0..2 {
        participant.proxy.expire_session().await?;
        for (registration, life) in registered.iter().zip(&mut lives) {
            *life = present(registration, *life).await?;
        }
        let lists_them = || {
            let instances = directory.instances();
            let listed: Vec<_> = instances.iter().map(|listed| listed.czxid()).collect();
            listed == lives
        };
        while !lists_them() {
            changes.next().await?;
        }
    }
    Ok(())
}

/// TestServiceDiscovery.testCleaning (CURATOR-163): services without instances stayed for ever. The nodes
/// above an instance are containers, which servers remove.
///
/// Fails with plain nodes above the instance, and with its own one left.
async fn nothing_empty_stays(participant: Participant) -> Result<()> {
    let registration = register(&participant.client, instance("7")).await?;
    let made = participant.proxy.requests();
    let count = |op| made.iter().filter(|request| **request == op).count();
    let plain = count(OpCode::Create) + count(OpCode::Create2);
    assert!(count(OpCode::CreateContainer) > 1 && plain == 0, "{made:?}");
    registration.unregister().await?;
    let (names, _) = participant.client.children(&ZnodePath::new("/services/web")?).await?;
    assert!(names.is_empty(), "{names:?}");
    Ok(())
}

async fn an_update_whose_reply_is_lost_is_made_once((participant, other): Observed) -> Result<()> {
    let registration = register(&participant.client, instance("7")).await?;
    let version = async || -> Result<i32> { Ok(other.data(&web("7")).await?.1.version) };
    for (losses, loss) in [Loss::BeforeRequest, Loss::BeforeReply].into_iter().enumerate() {
        participant.proxy.lose_next(OpCode::Multi, loss);
        registration.update(|instance| instance.weight += 1).await?;
        assert_eq!(version().await?, 2 + i32::try_from(losses)?, "{loss:?}");
    }
    let listed = Instance::from_json(&other.data(&web("7")).await?.0);
    assert_eq!(listed.map(|listed| listed.weight).map_err(|error| error.to_string()), Ok(3));
    registration.unregister().await?;
    Ok(())
}

async fn an_update_is_not_waited_for_longer_than_wanted_and_made_later(
    (participant, other): Observed,
) -> Result<()> {
    let registration = register(&participant.client, instance("7")).await?;
    let directory = open(&other).await?;
    let mut changes = directory.changes();
    participant.proxy.refuse();
    let timeout = Duration::from_millis(100);
    let late = RegisterError::Timeout { node: web("7"), timeout };
    assert_eq!(registration.drain_timeout(timeout).await, Err(late.clone()));
    // One behind it, and behind another one that waits, is made on top of it.
    let waits = async {
        let waits = registration.update_timeout(|instance| instance.weight = 2, timeout).await;
        assert_eq!(waits, Err(late));
        participant.proxy.restore();
    };
    let zoned = registration.update(|instance| instance.zone = Some("b".to_owned()));
    let (zoned, ()) = tokio::join!(zoned, waits);
    zoned?;
    let now = registration.instance().await;
    assert_eq!((now.weight, now.is_enabled, now.zone.as_deref()), (2, false, Some("b")));
    while directory.instances()[0].zone.is_none() {
        changes.next().await?;
    }
    assert_eq!(*directory.instances()[0].instance(), now);
    registration.update_timeout(|instance| instance.weight = 3, Duration::from_secs(60)).await?;
    let now = registration.instance().await;
    assert_eq!((now.weight, now.is_enabled), (3, false));
    registration.unregister().await?;
    Ok(())
}

async fn a_cancelled_update_that_is_refused_does_not_harm_later_ones(client: Client) -> Result<()> {
    let registration = register(&client, instance("7")).await?;
    // Polled once, which sends it.
    let cancelled = async |weight: u32, zone: &str| {
        let update = registration.update(|instance| {
            (instance.weight, instance.zone) = (weight, Some(zone.to_owned()));
        });
        tokio::select! {
            biased;
            done = update => bail!("{done:?}"),
            () = std::future::ready(()) => Ok(()),
        }
    };
    cancelled(2, &"x".repeat(2_000_000)).await?;
    registration.update(|instance| instance.address = Some("10.0.0.8".into())).await?;
    let now = registration.instance().await;
    assert_eq!((now.weight, now.zone.as_deref()), (1, None), "as before the one that was refused");
    assert_eq!(client.data(&web("7")).await?.0, now.to_json());

    // One that is not refused is built upon.
    cancelled(3, "b").await?;
    registration.drain().await?;
    let now = registration.instance().await;
    assert_eq!((now.weight, now.zone.as_deref(), now.is_enabled), (3, Some("b"), false));
    assert_eq!(client.data(&web("7")).await?.0, now.to_json());
    Ok(())
}

async fn an_earlier_life_is_replaced_without_a_gap((earlier, later): Clients) -> Result<()> {
    let first = register(&earlier, instance("7")).await?;
    let directory = open(&later).await?;
    let mut changes = directory.changes();
    let second = register(&later, instance("7").weight(2)).await?;
    assert_eq!(told(&changes.next().await?.changes), ["replaced 7"]);

    // The earlier one waits, and what it says of itself is of no interest.
    let mut states = first.changes();
    let taken = PresenceState::Taken { by: later.session_id() };
    states.wait_for(|state| *state == taken).await?;
    first.drain().await?;
    first.unregister().await?;
    later.sync(&web("7")).await?;
    let (data, stat) = later.data(&web("7")).await?;
    assert_eq!(data, second.instance().await.to_json());
    assert_eq!(stat.ephemeral_owner, later.session_id());
    Ok(())
}

/// The old program of a rolling restart drains while it has not heard that the new one is there.
///
/// Fails where each life of a node begins with the same version.
async fn an_earlier_life_that_does_not_know_it_yet_changes_nothing(
    (participant, later): Observed,
) -> Result<()> {
    let first = register(&participant.client, instance("7")).await?;
    let proxy = &participant.proxy;
    proxy.hold_replies();
    let second = register(&later, instance("7").weight(2)).await?;
    proxy.clear();
    let draining = tokio::spawn(async move { first.drain().await.map(|()| first) });
    proxy.passes(|passed| passed.contains(&Passed::Request(OpCode::Multi))).await;
    proxy.restore();
    let first = draining.await??;

    let taken = PresenceState::Taken { by: later.session_id() };
    first.changes().wait_for(|state| *state == taken).await?;
    assert_eq!(later.data(&web("7")).await?.0, second.instance().await.to_json());
    first.unregister().await?;
    assert_eq!(later.data(&web("7")).await?.0, second.instance().await.to_json());
    Ok(())
}

async fn anothers_node_is_waited_for((client, other): Clients) -> Result<()> {
    let theirs = Presence::builder(&other, web("7").as_str()).data("{\"id\":\"another\"}");
    let theirs = theirs.start().await?;
    let before = other.data(&web("7")).await?;
    let registration = register(&client, instance("7")).await?;
    assert_eq!(registration.state(), PresenceState::Taken { by: other.session_id() });
    registration.update(|instance| instance.weight = 4).await?;
    assert_eq!(client.data(&web("7")).await?, before, "and not touched");
    theirs.end().await?;
    present(&registration, Zxid(0)).await?;
    assert_eq!(client.data(&web("7")).await?.0, registration.instance().await.to_json());
    Ok(())
}

async fn it_is_taken_out_at_once((client, other): Clients) -> Result<()> {
    let registration = register(&client, instance("7")).await?;
    registration.unregister().await?;
    other.sync(&web("7")).await?;
    assert_eq!(other.exists(&web("7")).await?, None);

    let registration = register(&client, instance("7")).await?;
    let (found, mut gone) = other.exists_watched(&web("7")).await?;
    assert!(found.is_some());
    drop(registration);
    gone.changed().await?;
    assert_eq!(other.exists(&web("7")).await?, None);
    Ok(())
}

async fn what_is_no_registration_is_refused(client: Client) -> Result<()> {
    let mut fixed = instance("7");
    fixed.service_type = ServiceType::Permanent;
    let refused = Registration::start(&client, BASE, fixed).await;
    assert!(matches!(refused, Err(RegisterError::NotDynamic { .. })), "{refused:?}");
    let refused = Registration::start(&client, BASE, instance("a/b")).await;
    assert!(matches!(refused, Err(RegisterError::Path(_))), "{refused:?}");

    let registration = register(&client, instance("7")).await?;
    let before = registration.instance().await;
    let refused = registration.update(|instance| instance.id = "8".into()).await;
    assert_eq!(refused, Err(RegisterError::Renamed { node: web("7") }));
    let refused = registration.update(|instance| instance.service_type = ServiceType::Static).await;
    assert!(matches!(refused, Err(RegisterError::NotDynamic { .. })), "{refused:?}");
    assert_eq!(registration.instance().await, before);
    Ok(())
}

async fn registering_and_changing_cost_one_write_each(participant: Participant) -> Result<()> {
    let service = ZnodePath::new("/services/web")?;
    participant.client.ensure(&service, CreateMode::Container).await?;
    let proxy = &participant.proxy;
    proxy.clear();
    proxy.hold_replies();
    let client = participant.client.clone();
    let starting = tokio::spawn(async move { register(&client, instance("7")).await });
    let both = [Passed::Request(OpCode::Multi), Passed::Request(OpCode::GetData)];
    proxy.passes(|passed| passed == both).await;
    proxy.restore();
    let registration = starting.await??;
    assert_eq!(proxy.requests(), [OpCode::Multi, OpCode::GetData]);

    proxy.clear();
    registration.drain().await?;
    // Its own write wakes its watch, after which it looks again.
    proxy.passes(|passed| passed.contains(&Passed::Reply(OpCode::GetData))).await;
    assert_eq!(proxy.requests(), [OpCode::Multi, OpCode::GetData]);
    registration.unregister().await?;
    Ok(())
}
