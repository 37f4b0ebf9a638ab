//! The binary `tributary`.

use std::process::ExitCode;

/// mimalloc was chosen by measurement. After changes of 2 million objects, the process occupies 1.23 times the bytes of
/// its live data. With the C library's allocator, the factor is 2.16.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tributary_server::run(std::env::args_os())
}
