//! The `runyard` program: all code is in the library, so that tests can use it.

use std::process::ExitCode;

fn main() -> ExitCode {
    runyard::main()
}
