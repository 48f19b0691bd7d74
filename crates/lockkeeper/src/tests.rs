//! Tests of properties that all locks and recipes share.

use std::fmt;
use std::path::Path;

use crate::*;

/// The public errors in a folder of sources, and everything that implements [`Failure`] there.
fn errors_in(folder: &Path, errors: &mut Vec<String>, failures: &mut String) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            errors_in(&path, errors, failures);
            continue;
        }

        let text = std::fs::read_to_string(&path).unwrap();
        let own = text.lines().filter_map(|line| line.strip_prefix("impl std::error::Error for "));
        errors.extend(own.map(|line| line.trim_end_matches([' ', '{', '}']).to_owned()));
        for derived in text.split("thiserror::Error)]").skip(1) {
            let item =
                derived.lines().find(|line| line.contains("enum ") || line.contains("struct "));
            let name = item.and_then(|item| item.strip_prefix("pub ")?.split(' ').nth(1));
            errors.extend(
                name.map(|name| {
                    name.split(|c: char| !c.is_alphanumeric()).next().unwrap().to_owned()
                }),
            );
        }
        failures.push_str(&text);
    }
}

#[test]
fn every_public_error_is_a_failure() {
    let (mut errors, mut failures) = (Vec::new(), String::new());
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    errors_in(&here.join("../locks/src"), &mut errors, &mut failures);
    errors_in(&here.join("../recipes/src"), &mut errors, &mut failures);
    errors_in(&here.join("../client/src"), &mut errors, &mut failures);
    assert!(errors.len() > 30, "{errors:?}");

    errors.retain(|error| {
        let named_in = |head: &str| head.split([',', ':', ' ', '\n']).any(|name| name == error);
        let any_head = |of: &str, end: char| {
            failures.split(of).skip(1).any(|rest| rest.split(end).next().is_some_and(named_in))
        };
        !any_head("impl_failure!(", '{') && !any_head("fails_for_good!(", ')')
    });
    assert!(errors.is_empty(), "these public errors do not implement `Failure`: {errors:?}");
}

/// Symptom: the `Debug` output of a mutex was 593 characters long.
#[tokio::test]
async fn what_is_shown_fits_into_a_line_of_a_log() {
    let client = &Client::builder().connect_later("127.0.0.1:1").unwrap();
    let mutex = Mutex::new(client, "/a").unwrap();
    assert_eq!(format!("{mutex:?}"), "Mutex(/a)");
    // A path that has been checked before is accepted too.
    assert_eq!(Mutex::new(client, mutex.path()).unwrap().path(), mutex.path());
    let multi = MultiLock::new(client, ["/a", "/b"]).unwrap();
    assert_eq!(format!("{multi:?}"), "MultiLock(/a, /b)");
    assert_eq!(format!("{client:?}"), "Client(session 0x0, Disconnected)");

    let shown: [&dyn fmt::Debug; 14] = [
        &ReentrantMutex::new(client, "/a").unwrap(),
        &RwLock::new(client, "/a").unwrap(),
        &Semaphore::new(client, "/a", 2).unwrap(),
        &ExclusiveNode::new(client, "/a").unwrap(),
        &Locks::new(client, "/a").unwrap(),
        &Election::new(client, "/a").unwrap(),
        &Group::new(client, "/a").unwrap(),
        &Names::new(client, "/a").unwrap(),
        &Counter::new(client, "/a").unwrap(),
        &IdBlocks::new(&Counter::new(client, "/a").unwrap(), 10),
        &Notify::new(client, "/a").unwrap(),
        &Shared::<u8>::new(client, "/a").unwrap(),
        &Publication::<u8>::new(client, "/a").unwrap(),
        &Once::new(client, "/a").unwrap(),
    ];
    for shown in shown.map(|shown| format!("{shown:?}")) {
        assert!(shown.len() < 160 && shown.contains("/a"), "{}: {shown}", shown.len());
    }
}

/// The documentation tests run the programs of the pages that are listed.
#[test]
fn every_page_in_chinese_with_a_program_is_listed() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let listed = include_str!("chinese_pages.rs");
    for entry in std::fs::read_dir(root.join("docs/zh-CN")).unwrap() {
        let page = entry.unwrap().path();
        let name = page.file_name().unwrap().to_str().unwrap();
        let has_program = std::fs::read_to_string(&page).unwrap().contains("```rust");
        assert_eq!(has_program, listed.contains(&format!("/docs/zh-CN/{name}\"")), "{name}");
    }
}
