//! Ends the machine: on EC2 by a shutdown, which the launch template turns into a termination; in local mode by ending
//! the agent, which is the machine.

use std::time::Duration;

use async_trait::async_trait;

use crate::console;

/// Ends the machine.
#[async_trait]
pub trait Power: Send + Sync {
    /// Turns the machine off, for this reason. When it returns, ending this process is all that is left to do.
    async fn off(&self, why: &str);
}

/// The end of the agent is the end of the machine.
#[derive(Clone, Copy, Debug)]
pub struct Exit;

#[async_trait]
impl Power for Exit {
    async fn off(&self, _why: &str) {}
}

/// The machine's own shutdown. Never `halt`, which leaves an EC2 instance running.
#[derive(Clone, Copy, Debug)]
pub struct Systemctl;

const AGAIN: Duration = Duration::from_secs(20);

#[async_trait]
impl Power for Systemctl {
    async fn off(&self, why: &str) {
        // Its journal goes with it.
        console::say(&format!("powers off: {why}"));
        for force in
            [&["poweroff"][..], &["poweroff", "--force"], &["poweroff", "--force", "--force"]].iter().cycle()
        {
            let done = tokio::process::Command::new("systemctl").args(*force).status().await;
            tracing::warn!(command = ?force, outcome = ?done.map(|status| status.code()), "powering off");
            // The shutdown ends this process here.
            tokio::time::sleep(AGAIN).await;
        }
    }
}
