//! Ends the machine: on EC2 by a shutdown, which the launch template turns into a termination; in local mode by ending
//! the agent, which is the machine.

use std::time::Duration;

use async_trait::async_trait;
use tokio::process::Command;
use tokio::time::{sleep, timeout};

use crate::reports::console;

/// Ends the machine.
#[async_trait]
pub trait Power: Send + Sync {
    /// Powers the machine off, for this reason. When it returns, the process only has to exit.
    async fn off(&self, why: &str);
}

/// Ends the machine by the end of the agent.
#[derive(Clone, Copy, Debug)]
pub struct Exit;

#[async_trait]
impl Power for Exit {
    async fn off(&self, _why: &str) {}
}

/// Ends the machine by its own shutdown. Never uses `halt`, which leaves an EC2 instance running.
#[derive(Clone, Copy, Debug)]
pub struct Systemctl;

/// Commands for systemd, repeated in turn: an orderly shutdown, one that waits for no service, and the kernel's own.
const ORDERS: [&[&str]; 3] = [&["poweroff"], &["poweroff", "--force"], &["poweroff", "--force", "--force"]];

/// Interval between two commands.
const AGAIN: Duration = Duration::from_secs(20);

#[async_trait]
impl Power for Systemctl {
    async fn off(&self, why: &str) {
        // The journal is lost with the machine.
        console::say(&format!("powers off: {why}"));
        insist(|order| async move {
            let done = Command::new("systemctl").args(order).status().await;
            tracing::warn!(command = ?order, outcome = ?done.map(|status| status.code()), "powering off");
        })
        .await;
    }
}

/// Runs the commands until the shutdown ends this process. A command that hangs does not delay the next.
async fn insist<F: Future<Output = ()> + Send>(give: impl Fn(&'static [&'static str]) -> F + Send) {
    for order in ORDERS.into_iter().cycle() {
        let (given, ()) = tokio::join!(timeout(AGAIN, give(order)), sleep(AGAIN));
        if given.is_err() {
            tracing::warn!(command = ?order, "powering off: no answer");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn a_machine_that_stays_on_is_told_again_with_more_force_although_an_order_hangs() {
        for hangs in [false, true] {
            let (begun, orders) = (Instant::now(), Mutex::new(Vec::new()));
            let insisting = insist(|order| {
                orders.lock().unwrap().push((begun.elapsed().as_secs(), order.join(" ")));
                async move {
                    if hangs {
                        std::future::pending().await
                    }
                }
            });
            assert!(timeout(AGAIN * 3 + AGAIN / 2, insisting).await.is_err(), "it never stops by itself");
            let orders = orders.into_inner().unwrap();
            let orders: Vec<_> = orders.iter().map(|(at, order)| (*at, order.as_str())).collect();
            let all = [
                (0, "poweroff"),
                (20, "poweroff --force"),
                (40, "poweroff --force --force"),
                (60, "poweroff"),
            ];
            assert_eq!(orders, all, "an order hangs: {hangs}");
        }
    }
}
