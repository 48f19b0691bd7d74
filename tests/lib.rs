//! Suites that span crates. Each folder beside this file is one suite; see `CONTRIBUTING.md`.
