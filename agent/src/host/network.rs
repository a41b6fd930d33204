//! The network of a job: a loopback of its own and one link to the machine, which forwards traffic to other hosts and
//! answers nothing itself. No address is used twice in a row, so that late packets for an earlier job do not reach a
//! later one.

use std::fs::{self, File};
use std::io::Write;
use std::net::{IpAddr, Ipv4Addr};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use nix::sched::{CloneFlags, setns, unshare};
use nix::unistd::getppid;

/// How the machine's ends of such links begin; the rules of the firewall name them so.
pub(super) const LINK: &str = "ryjob";
/// The job's end.
const ETH: &str = "eth0";
/// For benchmarks of networks (RFC 2544): no VPC has them. Two addresses a link, of four.
const FIRST: Ipv4Addr = Ipv4Addr::new(198, 18, 0, 0);
const LINKS: u32 = 1 << 15;
/// How often links are looked for that must go, and how long between two looks: a second in all.
const LOOKS: u32 = 50;
const LOOK: Duration = Duration::from_millis(20);

/// The machine's address and the job's on the link of this number.
fn addresses(link: u32) -> (Ipv4Addr, Ipv4Addr) {
    let net = u32::from(FIRST) + (link % LINKS) * 4;
    (Ipv4Addr::from(net + 1), Ipv4Addr::from(net + 2))
}

/// Moves this process to a network namespace of its own, with a link to the one it was in, that of its parent.
///
/// # Errors
/// What could not be made.
pub(super) fn connect(link: u32) -> anyhow::Result<()> {
    sysctl("net/ipv4/ip_forward", "1")?;
    let net = || File::open("/proc/self/ns/net").context("/proc/self/ns/net");
    let machine = net()?;
    unshare(CloneFlags::CLONE_NEWNET).context("a network namespace")?;
    let job = net()?;
    let name = format!("{LINK}{}", std::process::id());
    let (gateway, own) = addresses(link);
    let up = |link: &str, address: Ipv4Addr| {
        format!("link set {link} addrgenmode none\naddr add {address}/30 dev {link}\nlink set {link} up\n")
    };
    let parent = getppid();
    let made = format!("link set lo up\nlink add name {ETH} type veth peer name {name} netns {parent}\n");
    ip(&(made + &up(ETH, own) + &format!("route add default via {gateway}\n")))?;
    // As the unprivileged may on most machines, and cannot by a file's capability here.
    sysctl("net/ipv4/ping_group_range", "0 2147483647")?;
    setns(&machine, CloneFlags::CLONE_NEWNET)?;
    ip(&up(&name, gateway))?;
    Ok(setns(&job, CloneFlags::CLONE_NEWNET)?)
}

/// Cuts the links of earlier jobs: a connection that nobody holds any more may keep its namespace for minutes.
///
/// # Errors
/// A link does not go.
pub(super) fn cut() -> anyhow::Result<()> {
    // One whose namespace is on its way out, or that a jail was making when it was ended, is there for a moment more.
    for look in 0..LOOKS {
        let left = links()?;
        if left.is_empty() {
            return Ok(());
        }
        for link in &left {
            // It may go by itself meanwhile.
            let _ = Command::new("ip").args(["link", "delete", link]).stderr(Stdio::null()).status();
        }
        if look > 0 {
            std::thread::sleep(LOOK);
        }
    }
    bail!("a link of an earlier job does not go")
}

fn links() -> anyhow::Result<Vec<String>> {
    let listed = Command::new("ip").args(["-o", "link", "show"]).output().context("ip")?;
    Ok(of_jobs(&String::from_utf8_lossy(&listed.stdout)))
}

/// The links of jobs in what `ip -o link show` prints: `7: ryjob12@if2: <BROADCAST…`.
fn of_jobs(listed: &str) -> Vec<String> {
    let names = listed.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
    names.filter(|name| name.starts_with(LINK)).map(str::to_owned).collect()
}

fn ip(batch: &str) -> anyhow::Result<()> {
    let mut child = Command::new("ip").args(["-batch", "-"]).stdin(Stdio::piped()).spawn().context("ip")?;
    child.stdin.take().expect("it is piped").write_all(batch.as_bytes())?;
    let status = child.wait()?;
    if !status.success() {
        bail!("ip: {status}: {}", batch.replace('\n', "; "));
    }
    Ok(())
}

fn sysctl(name: &str, value: &str) -> anyhow::Result<()> {
    let path = format!("/proc/sys/{name}");
    if fs::read_to_string(&path).is_ok_and(|now| now.split_whitespace().eq(value.split_whitespace())) {
        return Ok(());
    }
    fs::write(&path, value).context(path)
}

/// Where resolvers are named: as programs find them, and, where these are asked by way of one on this machine, by the
/// services that run it.
const RESOLVERS: [&str; 3] =
    ["/etc/resolv.conf", "/run/systemd/resolve/resolv.conf", "/run/NetworkManager/no-stub-resolv.conf"];

/// The `/etc/resolv.conf` of jobs.
pub(super) fn resolvers() -> String {
    let files: Vec<String> = RESOLVERS.iter().filter_map(|file| fs::read_to_string(file).ok()).collect();
    resolv_conf(&files)
}

/// The first of these in which a server is named that a job can reach, without those that it cannot.
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
    fn links_of_jobs_are_told_from_the_machines_own() {
        let listed =
            "1: lo: <LOOPBACK,UP> mtu 65536\n2: eth0@if3: <UP>\n9: ryjob12@if2: <UP>\n10: ryjob4: <>\n";
        assert_eq!(of_jobs(listed), ["ryjob12", "ryjob4"]);
    }
}
