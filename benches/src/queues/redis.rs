//! A stream of Redis with a consumer group. What is acknowledged stays in the stream.

use std::time::Duration;

use anyhow::Result;
use redis::AsyncCommands;
use redis::aio::MultiplexedConnection;
use redis::streams::{StreamReadOptions, StreamReadReply};
use tokio::task::JoinSet;

use super::items::{Consumers, Items, put_until_done};
use crate::locks::redis::connect;
use crate::measure::{Measured, Plan};

const GROUP: &str = "workers";
const FIELD: &str = "content";

/// How long a consumer waits for items until it asks again.
const BLOCK: Duration = Duration::from_secs(1);

/// All puts share a connection; each consumer has one.
pub(crate) async fn measure(
    address: &str,
    stream: &str,
    consumers: Consumers,
    plan: Plan,
) -> Result<Measured> {
    let (mut connection, _) = connect(address).await?;
    let _: () = connection.xgroup_create_mkstream(stream, GROUP, "0").await?;
    let (items, mut consuming) = (Items::new(), JoinSet::new());
    for consumer in 0..consumers.count {
        let (connection, _) = connect(address).await?;
        let options = StreamReadOptions::default()
            .group(GROUP, consumer)
            .count(consumers.at_once())
            .block(usize::try_from(BLOCK.as_millis())?);
        consuming.spawn(consume(connection, stream.to_owned(), options, items.clone()));
    }

    let (putting, name) = (connection.clone(), stream.to_owned());
    let put = move |content: bytes::Bytes| {
        let (mut connection, stream) = (putting.clone(), name.clone());
        async move {
            let _: String = connection.xadd(&stream, "*", &[(FIELD, &content[..])]).await?;
            Ok(())
        }
    };
    let measured = put_until_done(&items, consuming, put, plan).await?;
    let _: () = connection.del(stream).await?;
    Ok(measured)
}

async fn consume(
    mut connection: MultiplexedConnection,
    stream: String,
    options: StreamReadOptions,
    items: Items,
) -> Result<()> {
    loop {
        let reply: Option<StreamReadReply> =
            connection.xread_options(&[&stream], &[">"], &options).await?;
        for key in reply.into_iter().flat_map(|reply| reply.keys) {
            let ids: Vec<&str> = key.ids.iter().map(|item| item.id.as_str()).collect();
            let _: usize = connection.xack(&stream, GROUP, &ids).await?;
            for item in &key.ids {
                let content: Vec<u8> = item.get(FIELD).unwrap_or_default();
                items.done(&content)?;
            }
        }
    }
}
