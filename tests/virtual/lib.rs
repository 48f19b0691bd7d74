//! The suites are beside this folder: `tests/simulation` and `tests/model`.
