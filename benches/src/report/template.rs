//! What the templates of the page and of the charts have in common.

use anyhow::Result;
use minijinja::Environment;
use minijinja::syntax::SyntaxConfig;

use super::numbers::short;

/// Lines with nothing but a block leave no line behind; a missing number is empty.
pub(super) fn environment() -> Result<Environment<'static>> {
    let mut environment = Environment::new();
    environment.set_syntax(SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build()?);
    environment.add_filter("short", |number: Option<f64>| number.map(short).unwrap_or_default());
    Ok(environment)
}
