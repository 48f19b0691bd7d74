//! The programs of the pages in Chinese, as documentation tests.

macro_rules! pages {
    ($($name:ident: $file:literal;)*) => {
        $(#[doc = include_str!($file)] mod $name {})*
    };
}

pages! {
    readme: "../../../README.zh-CN.md";
    getting_started: "../../../docs/zh-CN/getting-started.md";
    ephemeral_node: "../../../docs/zh-CN/ephemeral-node.md";
    fair_lock: "../../../docs/zh-CN/fair-lock.md";
    reentrant: "../../../docs/zh-CN/reentrant.md";
    read_write: "../../../docs/zh-CN/read-write.md";
    lease_and_token: "../../../docs/zh-CN/lease-and-token.md";
    eight_uses: "../../../docs/zh-CN/eight-uses.md";
}
