use crate::args::Global;
use crate::exit::Failure;
use clap::Args;
/// x
#[derive(Debug, Args)]
pub(crate) struct Options {}
pub(crate) async fn demo(_g: &Global, _o: Options) -> Result<u8, Failure> {
    Ok(0)
}
