//! The tributary program.

use std::process::ExitCode;

/// Chosen by measurement: after a churn of 2 million objects the process holds 1.23 times its live bytes, with the
/// C library's allocator 2.16 times.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    tributary_server::run(std::env::args_os())
}
