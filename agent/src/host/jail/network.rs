//! The network of a job: a loopback of its own and one link to the machine, which forwards traffic to other hosts and
//! answers nothing itself. No address is used twice in a row, so that late packets for an earlier job do not reach a
//! later one.

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::getppid;
use tokio::time::{Instant, sleep};

use super::connections;
use crate::host::jail;

/// Prefix of the names of the machine's ends of such links; the firewall rules use it.
pub(crate) const LINK: &str = "ryjob";
/// Name of the job's end of the link.
const ETH: &str = "eth0";
/// First address of the links: reserved for benchmarks of networks (RFC 2544), so no VPC uses it. A link takes four
/// addresses and uses two.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const LINKS: u32 = 1 << 15;
/// Length of the prefix that all link addresses share, in bits.
const PREFIX: u32 = 15;
/// Interval between two checks for links that must be deleted.
const LOOK: Duration = Duration::from_millis(5);

/// Returns the machine's address and the job's on the link of this number.
fn addresses(link: u32) -> (Ipv4Addr, Ipv4Addr) {
    let net = u32::from(FIRST) + (link % LINKS) * 4;
    (Ipv4Addr::from(net + 1), Ipv4Addr::from(net + 2))
}

/// Moves this process to its own network namespace, with a link to the namespace that it was in, which is also its
/// parent's.
///
/// # Errors
/// The part that could not be created.
pub(crate) fn connect(link: u32) -> anyhow::Result<()> {
    sysctl("net/ipv4/ip_forward", "1")?;
    let net = || File::open("/proc/self/ns/net").context("/proc/self/ns/net");
    let machine = net()?;
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace")?;
    let job = net()?;
    let name = format!("{LINK}{}", std::process::id());
    let (gateway, own) = addresses(link);
    let ipv6 = has_ipv6();
    let parent = getppid();
    let made = format!("link set lo up\nlink add name {ETH} type veth peer name {name} netns {parent}\n");
    ip(&(made + &up(ETH, own, ipv6) + &format!("route add default via {gateway}\n")))?;
    // Permits unprivileged users to ping, as on most machines; a file capability does not work here.
    sysctl("net/ipv4/ping_group_range", "0 2147483647")?;
    setns(&machine, CloneFlags::CLONE_NEWNET)?;
    ip(&up(&name, gateway, ipv6))?;
    Ok(setns(&job, CloneFlags::CLONE_NEWNET)?)
}

/// Returns whether the kernel has IPv6: it may be built or booted (`ipv6.disable=1`) without.
pub(crate) fn has_ipv6() -> bool {
    Path::new("/proc/net/if_inet6").exists()
}

/// Returns the commands that give a link its address. The link generates no IPv6 address; on a kernel without IPv6 the
/// command for this is omitted, because `ip` would fail.
fn up(link: &str, address: Ipv4Addr, ipv6: bool) -> String {
    let none = if ipv6 { format!("link set {link} addrgenmode none\n") } else { String::new() };
    format!("{none}addr add {address}/30 dev {link}\nlink set {link} up\n")
}

/// Deletes the links of earlier jobs: a connection that no process holds any more may keep its namespace for minutes.
/// Also deletes their entries from the machine's connection tracking.
///
/// # Errors
/// A link cannot be deleted.
pub(crate) async fn cut() -> anyhow::Result<()> {
    cut_all(links, |link| {
        // The link may disappear by itself meanwhile.
        let _ = Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
    })
    .await?;
    let forgotten = tokio::task::spawn_blocking(|| connections::forget(FIRST, PREFIX)).await?;
    match forgotten {
        Ok(0) => {}
        Ok(left) => tracing::warn!(left, "connections of earlier jobs stay in this machine's table"),
        Err(error) => {
            tracing::warn!(%error, "connections of earlier jobs cannot be deleted from this machine's table")
        }
    }
    Ok(())
}

/// Deletes links until none is left. A jail that was dropped during its creation is created to the end, and its link
/// may appear after the first check.
async fn cut_all(
    mut links: impl FnMut() -> anyhow::Result<Vec<String>>,
    mut delete: impl FnMut(&str),
) -> anyhow::Result<()> {
    let end = Instant::now() + jail::MADE;
    loop {
        let left = links()?;
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= end {
            bail!("links of earlier jobs do not go: {}", left.join(", "));
        }
        left.iter().for_each(|link| delete(link));
        sleep(LOOK).await;
    }
}

fn links() -> anyhow::Result<Vec<String>> {
    let listed = Command::new("ip").args(["-o", "link", "show"]).output().context("ip")?;
    Ok(of_jobs(&String::from_utf8_lossy(&listed.stdout)))
}

/// Returns the links of jobs from the output of `ip -o link show`: `7: ryjob12@if2: <BROADCAST…`.
fn of_jobs(listed: &str) -> Vec<String> {
    let names = listed.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    names.filter(|name| name.starts_with(LINK)).map(str::to_owned).collect()
}

fn ip(batch: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("ip")?;
    let written = child.stdin.take().expect("it is piped").write_all(batch.as_bytes());
    // The exit status is more informative than the failed write.
    let status = child.wait()?;
    if !status.success() {
        bail!("ip: {status}: {}", batch.replace('\n', "; "));
    }
    written.context("ip")
}

fn sysctl(name: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/{name}");
    if fs::read_to_string(&path).is_ok_and(|now| now.split_whitespace().eq(value.split_whitespace())) {
        return Ok(());
    }
    fs::write(&path, value).context(path)
}

/// Files that name resolvers: the one that programs read, and those of the services that run a resolver on this
/// machine, in case the first names only that one.
const RESOLVERS: [&str; 3] =
    ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// Returns the `/etc/resolv.conf` of jobs.
pub(crate) fn resolvers() -> String {
    let files: Vec<String> = RESOLVERS.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    resolv_conf(&files)
}

/// Returns the first of these files that names a server that a job can reach, without the servers that it cannot reach.
fn resolv_conf(files: &[String]) -> String {
    let reached = |line: &&str| match line.strip_prefix("nameserver") {
        None => !line.starts_with('#'),
        Some(server) => server
            .trim()
            .parse()
            .is_ok_and(|ip: IpAddr| ip.is_ipv4() && !ip.is_loopback() && !ip.is_unspecified()),
    };
    let kept =
        |file: &String| file.lines().filter(reached).map(|line| format!("{line}\n")).collect::<String>();
    files.iter().map(kept).find(|text| text.contains("nameserver")).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_that_only_the_machine_reaches_is_replaced_by_those_it_asks() {
        let stub = "# managed\nnameserver 127.0.0.53\noptions edns0\nsearch a.internal\n".to_owned();
        let asked = "nameserver 10.0.0.2\nnameserver fd00:ec2::253\nsearch a.internal\n".to_owned();
        let wanted = "nameserver 10.0.0.2\nsearch a.internal\n";
        assert_eq!(resolv_conf(&[stub.clone(), asked.clone()]), wanted);
        assert_eq!(resolv_conf(&[asked, stub.clone()]), wanted);
        assert_eq!(resolv_conf(&[stub]), "");
    }

    #[test]
    fn a_link_has_addresses_that_come_back_after_all_others() {
        assert_eq!(addresses(0), (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)));
        assert_eq!(addresses(LINKS - 1).1, Ipv4Addr::new(198, 19, 255, 254));
        assert_eq!(addresses(LINKS), addresses(0));
        let all: std::collections::BTreeSet<_> = (7..7 + LINKS).map(addresses).collect();
        assert_eq!(all.len(), 1 << 15);
    }

    #[test]
    fn a_link_is_made_where_the_kernel_has_no_ipv6_too() {
        let address = Ipv4Addr::new(198, 18, 0, 2);
        assert_eq!(up("eth0", address, false), "addr add 198.18.0.2/30 dev eth0\nlink set eth0 up\n");
        let with = up("eth0", address, true);
        assert_eq!(with, "link set eth0 addrgenmode none\n".to_owned() + &up("eth0", address, false));
    }

    #[test]
    fn links_of_jobs_are_told_from_the_machines_own() {
        let listed =
            "1: lo: <LOOPBACK,UP> mtu 65536\n2: eth0@if3: <UP>\n9: ryjob12@if2: <UP>\n10: ryjob4: <>\n";
        assert_eq!(of_jobs(listed), ["ryjob12", "ryjob4"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_comes_while_links_are_cut_is_cut_too() {
        let (mut looks, mut cut) = (0, Vec::new());
        let links = || {
            looks += 1;
            Ok(match looks {
                1 => vec!["ryjob1".to_owned()],
                2 => vec!["ryjob2".to_owned()],
                _ => Vec::new(),
            })
        };
        cut_all(links, |link| cut.push(link.to_owned())).await.unwrap();
        assert_eq!(cut, ["ryjob1", "ryjob2"]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_link_that_does_not_go_is_named_after_as_long_as_a_jail_may_take() {
        let begun = Instant::now();
        let stays = cut_all(|| Ok(vec!["ryjob7".to_owned()]), |_| {}).await.unwrap_err().to_string();
        assert_eq!(
            (stays.as_str(), begun.elapsed()),
            ("links of earlier jobs do not go: ryjob7", jail::MADE)
        );
    }
}
