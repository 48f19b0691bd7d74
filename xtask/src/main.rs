//! Set-up, tests and checks of this repository.

fn main() {}
