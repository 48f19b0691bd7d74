//! Bytes that are no protocol: they cost their sender the connection, and nobody else anything.

use std::time::Duration;

use bytes::{BufMut, BytesMut};
use lockkeeper_engine::Engine;
use lockkeeper_wire::{CreateMode, MAX_FRAME};

use crate::client::{Client, create};

const LONG: Duration = Duration::from_secs(30);

/// Sends `bytes` before and after a handshake, and checks that only that connection ends.
async fn only_its_sender_is_hurt(bytes: &[u8]) {
    let engine = Engine::builder().start().await.unwrap();
    let mut bystander = Client::connect(&engine, LONG);

    let mut stranger = Client::raw(&engine);
    stranger.send_bytes(bytes);
    stranger.half_close();
    assert!(stranger.rest().is_empty());

    let mut client = Client::connect(&engine, LONG);
    client.send(&[create("/before", CreateMode::Persistent)]);
    client.send_bytes(bytes);
    client.half_close();
    assert!(client.reply().is_ok() || bystander.exists("/before"));
    client.rest();

    bystander.create("/after", CreateMode::Ephemeral).unwrap();
    engine.stop().await.unwrap();
}

#[tokio::test]
async fn a_negative_length() {
    only_its_sender_is_hurt(&(-1_i32).to_be_bytes()).await;
}

#[tokio::test]
async fn a_length_over_the_limit() {
    only_its_sender_is_hurt(&(MAX_FRAME as i32 + 1).to_be_bytes()).await;
}

#[tokio::test]
async fn a_frame_that_is_cut_off() {
    let mut bytes = BytesMut::new();
    bytes.put_i32(100);
    bytes.put_slice(b"only this");
    only_its_sender_is_hurt(&bytes).await;
}

#[tokio::test]
async fn a_frame_of_garbage() {
    let mut bytes = BytesMut::new();
    bytes.put_i32(3);
    bytes.put_slice(b"\xff\xff\xff");
    only_its_sender_is_hurt(&bytes).await;
}

#[tokio::test]
async fn an_empty_frame() {
    only_its_sender_is_hurt(&0_i32.to_be_bytes()).await;
}

/// Before the handshake a few KB are enough for anybody.
#[tokio::test]
async fn a_large_first_frame() {
    let engine = Engine::builder().start().await.unwrap();
    let mut stranger = Client::raw(&engine);
    stranger.send_bytes(&5_000_i32.to_be_bytes());
    assert!(stranger.rest().is_empty(), "closed at once");
}

/// A frame that drips in is a frame like any other.
#[tokio::test]
async fn a_request_in_single_bytes() {
    let engine = Engine::builder().start().await.unwrap();
    let mut client = Client::connect(&engine, LONG);
    let mut out = BytesMut::new();
    lockkeeper_wire::write_frame(&mut out, |out| {
        create("/a", CreateMode::Persistent).encode(1, out);
    });
    for byte in &out[..] {
        client.send_bytes(&[*byte]);
    }
    assert_eq!(client.reply().unwrap().0.error, 0);
}
