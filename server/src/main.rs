//! The binary `tributary`.

use std::process::ExitCode;

/// mimalloc was chosen by measurement: after changes of 2 million objects, the process occupies 1.23 times its live
/// bytes. With the C library's allocator, it occupies 2.16 times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tributary_server::run(std::env::args_os())
}
