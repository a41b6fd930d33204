//! The probable cause of a failure: matches the messages of machines, EC2 and GitHub about it against the signs of
//! known causes. One row per cause, the more specific before the more general.

/// A known cause, and its fix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cause {
    /// Its name, for programs.
    pub name: &'static str,
    /// The fault, in a sentence.
    pub why: &'static str,
    /// The command or the setting that fixes it.
    pub fix: &'static str,
    /// The signs: each matches a message that contains all its parts in this order, regardless of case.
    signs: &'static [&'static [&'static str]],
}

/// A cause, and the message by which it was recognised.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Probable<'a> {
    /// The cause.
    pub cause: &'static Cause,
    /// The message.
    pub said: &'a str,
}

macro_rules! causes {
    ($($name:literal: $why:literal, $fix:literal, [$([$($part:literal),+]),+];)*) => {
        /// All known causes.
        pub const CAUSES: &[Cause] = &[$(Cause { name: $name, why: $why, fix: $fix, signs: &[$(&[$($part),+]),+] },)*];
    };
}

causes! {
    "no-leader": "No operator leads the yard, so nothing is launched, claimed or ended for good.",
        "start `runyard operator`, or look at why it does not take the lease (`runyard doctor`, its log)",
        [["no operator leads"]];
    "unreadable-record": "A record cannot be read: a program or a person wrote it wrong, or a newer program wrote it.",
        "`runyard doctor` names the attribute; correct it and raise `version`, or update this program",
        [["it cannot be read: "], ["the record of class", "cannot be read"], ["classunreadable"]];
    "ended-by-a-person": "A person asked for its end.",
        "ask who is named beside this; `runyard events` shows when they did so",
        [["reason expired"], ["failedbyperson"], ["after ", "had asked for its end"]];
    "intent-ignored": "The request was changed after it was accepted, and it is served as it was accepted.",
        "release it, and ask again under another name or attempt",
        [["served as it was accepted"], ["intentignored"]];
    "list-disbelieved": "EC2's list of machines lacks too many at once to be believed.",
        "see whether somebody ended them or the list is wrong (`runyard doctor`); nothing is ended for that",
        [["the list of machines lacks"]];
    "silence-in-bulk": "Many agents fell silent at once: something between them and the table, not the machines.",
        "look at the network, proxy or endpoint that they share, and at DynamoDB's throttling",
        [["fell silent together"]];
    "agent-digest": "The machine fetched an agent with another digest than the configuration says.",
        "set agent.sha256 to the digest of the file at agent.url",
        [["the agent from", "has not the sha-256"]];
    "agent-unreachable": "The machine cannot fetch the agent at its first boot.",
        "see that agent.url answers without a credential from the machines' subnets (route, proxy in agent.environment)",
        [["the agent cannot be had from"], ["first boot failed while it fetched the agent"]];
    "package-digest": "The runner package has another digest than the configuration says.",
        "set agent.runner_sha256 to the digest of the file at agent.runner_url",
        [["its sha-256 is", "mend runner.sha256"], ["runner package has another digest"]];
    "package-missing": "The server of the runner package refuses it, or does not have it.",
        "see that agent.runner_url answers without a credential",
        [["the server answers 4"]];
    "package-damaged": "The runner package or the agent is not what it should be: cut short, or no archive.",
        "see that the address serves the file itself, not a page about it, and that it is complete",
        [["not in gzip format"], ["unexpected end of file"], ["does not look like a tar archive"], ["invalid gzip"],
         ["corrupt deflate"]];
    "server-fails": "A server that the machine or the operator needs answers with errors of its own.",
        "look at that server, or at GitHub's or AWS's status page; it is tried again by itself",
        [["the server answers 5"], ["502 bad gateway"], ["503 service unavailable"], ["504 gateway"],
         ["500 internal server error"], ["internalservererror"], ["serviceunavailable"]];
    "wrong-architecture": "A program of another architecture is on the machine.",
        "set launch.architecture, and agent.runner_url_arm64 and agent.url_arm64 for machines of arm64",
        [["exec format error"], ["cannot execute binary file"]];
    "library-missing": "The image lacks a library or a program, or has an older C library than a program needs.",
        "install what is named in the image, or use a newer image",
        [["version `glibc"], ["error while loading shared libraries"], ["command not found"],
         ["no such file or directory", "interpreter"]];
    "no-packet-filter": "The image has neither nft nor iptables, so jobs could take the machine's role.",
        "install nftables in the image, or let first boots reach a package mirror",
        [["jobs could take this machine's role"]];
    "account-comes-back": "The image gave the jobs' user a shell, a password, groups or ranges of ids.",
        "remove the user runyard-job from the image; the agent makes it",
        [["can come back after its jobs"]];
    "no-namespaces": "The machine cannot make the namespaces that jobs run in.",
        "an image with a kernel of 5.10 or newer, overlayfs, iproute2 and user.max_user_namespaces above 0",
        [["max_user_namespaces"], ["unshare", "not permitted"], ["a network namespace"], ["a mount namespace"]];
    "metadata-reachable": "Jobs reach the metadata service, and with it the machine's role.",
        "remove rules of the image that let the jobs' user out to 169.254.169.254",
        [["the metadata service at", "answers"]];
    "engine-reachable": "Jobs reach a socket of root, such as a container engine's.",
        "stop the engine in the image, or close its socket to others than root",
        [["answers: its user is root"]];
    "libicu-missing": "The image lacks libicu, which GitHub's runner needs.",
        "install libicu in the image (bin/installdependencies.sh of the runner)",
        [["valid icu package"], ["libicu"]];
    "disk-full": "The machine's disk is full.",
        "raise launch.volume.gib, or find what fills the disk: `runyard events instance ID`",
        [["no space left on device"], ["enospc"], ["disk quota exceeded"]];
    "disk-read-only": "The machine's disk cannot be written.",
        "mount it writable, without noexec where programs run; a disk that turned read-only is broken",
        [["read-only file system"], ["erofs"]];
    "machine-exhausted": "The machine has no more memory, processes or open files to give.",
        "allow larger types (cpu, mmem), or raise the image's limits",
        [["cannot allocate memory"], ["too many open files"], ["resource temporarily unavailable"],
         ["cannot fork"], ["fork: retry"]];
    "runner-deprecated": "GitHub takes no runner of this version any more.",
        "update agent.runner_url, agent.runner_sha256 and agent.runner_version to GitHub's newest release",
        [["takes no runner of this version"], ["runner version", "deprecated"]];
    "runner-forgotten": "Somebody removed the runner at GitHub, or GitHub forgot it.",
        "nothing: it is registered anew. Where it goes on, look who deletes runners (the organisation's audit log)",
        [["github does not know it any more"], ["no longer exists on the server"],
         ["registration has been deleted from the server"]];
    "runner-killed": "The runner's listener was killed, or ended without being asked.",
        "nothing: it is registered anew. Where it goes on, allow larger types: memory was short, or a job killed it",
        [["its listener died"], ["nobody asked for it"]];
    "runner-cut-off": "The machine's runner cannot reach GitHub's services, though it could register.",
        "see githubstatus.com, and that the machines reach *.actions.githubusercontent.com (proxy in agent.environment)",
        [["its runner cannot reach github"]];
    "runner-name-taken": "GitHub holds a session of a runner with this name.",
        "wait: GitHub lets go of a dead one within four minutes. Where it stays, two yards share one GitHub scope and \
         table name: give one another `table`",
        [["its name is connected from elsewhere"], ["a session for this runner already exists"]];
    "runner-group": "The runner group does not exist, or this repository may not use it.",
        "name a group of the organisation in `runnerGroup`, and let the repository use it (`runyard doctor --config FILE --preflight`)",
        [["runner group"], ["unknownrunnergroup"]];
    "run-unknown": "GitHub knows no such run in that repository.",
        "provision inside the run itself, or with the run's own id and repository",
        [["has no run "], ["is no run of github"]];
    "github-refuses-address": "GitHub does not take calls from this address: an allow list of the organisation.",
        "add the NAT gateway's addresses to the organisation's IP allow list",
        [["ip allow list"]];
    "github-suspended": "The App's installation is suspended, or single sign-on was not granted.",
        "an owner of the organisation lifts the suspension, or authorises the token for single sign-on",
        [["has been suspended"], ["saml"]];
    "github-disabled": "The repository or organisation does not allow self-hosted runners.",
        "allow them in the organisation's settings for Actions runners; archived repositories have none",
        [["self-hosted runners are disabled"], ["runners are not allowed"], ["repository was archived"],
         ["repository access blocked"]];
    "github-credential": "GitHub does not accept the operator's credential.",
        "`runyard doctor --config FILE`; renew the token, or the App's key and its installation",
        [["bad credentials"], ["401", "github"], ["github", "401"], ["json web token could not be decoded"],
         ["integration not found"]];
    "github-permission": "The credential may not manage runners there.",
        "give the App Administration (repository scope) or Self-hosted runners (organisation scope), read and write, \
         and accept the change in its installation",
        [["resource not accessible by"], ["must have admin rights"], ["403", "github"], ["github", "403"]];
    "github-scope": "GitHub has no such owner or repository for this credential.",
        "install the App for that repository (`runyard doctor --config FILE --preflight --repository OWNER/REPO`)",
        [["runner-registration", "404"], ["404", "runner-registration"], ["github", "404"], ["not found", "installation"]];
    "github-limit": "GitHub's rate limit is used up.",
        "wait until it is renewed (within the hour); runyard_github_rate_remaining shows what is left",
        [["rate limit"]];
    "clock": "The clock of the machine or the operator is wrong.",
        "let it follow a time server (chrony with 169.254.169.123 on EC2)",
        [["requestexpired"], ["signature expired"], ["signaturedoesnotmatch"], ["invalidsignatureexception"], ["signature not yet current"], ["not yet valid"], ["clock skew"],
         ["'issued at' claim"]];
    "no-name-service": "The machine resolves no names.",
        "see that the subnets' VPC has DNS, and that the image's resolver is not a local stub alone",
        [["name or service not known"], ["temporary failure in name resolution"], ["could not resolve"],
         ["failed to lookup address"], ["dns error"]];
    "certificate": "A certificate is not trusted: a proxy answers in the server's place.",
        "put the proxy's certificate into the image's store, or leave the address out by NO_PROXY",
        [["certificate verify failed"], ["self-signed certificate"], ["self signed certificate"], ["unknownissuer"],
         ["invalid peer certificate"]];
    "no-route": "The machine or the operator has no way to the server.",
        "give the subnets a NAT gateway, VPC endpoints or a proxy (agent.environment), and open port 443 outward",
        [["network is unreachable"], ["no route to host"], ["connection timed out"], ["connection refused"],
         ["error trying to connect"], ["tcp connect error"], ["couldn't connect to server"]];
    "machine-role": "AWS refuses the machine's role, or the machine has none.",
        "set launch.instanceProfile to the stack's MachineProfile (`runyard doctor --config FILE --preflight`)",
        [["no credentials", "imds"], ["is not authorized to perform: dynamodb"], ["no instance profile"],
         ["invalid iam instance profile"]];
    "pre-runner-script": "The class's pre-runner script fails or takes too long.",
        "run launch.preRunnerScript on such an image by hand; raise agent.pre_runner_timeout if it is slow",
        [["pre-runner"]];
    "operator-policy": "EC2 refuses the operator: its policy, or a rule of your organisation.",
        "give the operator's role config/iam/operator.json; look for a service control policy; \
         `runyard doctor --config FILE --preflight` tries each call",
        [["unauthorizedoperation"], ["accessdenied"], ["authfailure"]];
    "throttled": "AWS slows the calls down: too many at once in this account, or in this table.",
        "nothing to do if it passes; look for other programs that call EC2 much, and at the table's throttling",
        [["requestlimitexceeded"], ["throttlingexception"], ["provisionedthroughputexceeded"], ["rate exceeded"],
         ["throttled"]];
    "session-ended": "AWS credentials are out of date: the session that they belong to has ended.",
        "sign in again (a role's session of OIDC lasts an hour), then repeat the command",
        [["expiredtoken"], ["token included in the request is expired"]];
    "credentials-unknown": "AWS does not know the credentials.",
        "correct or renew the access key; in a workflow check the role's trust policy",
        [["unrecognizedclient"], ["invalidclienttokenid"], ["security token included in the request is invalid"]];
    "table-missing": "The table, or a queue, does not exist in this region and account.",
        "correct `table`, the region or the queue's address (`runyard doctor --config FILE`)",
        [["resourcenotfoundexception"], ["nonexistentqueue"]];
    "subnet-full": "A subnet has no free addresses left.",
        "add larger subnets to launch.subnetIds, or free addresses in these",
        [["insufficientfreeaddresses"], ["networkinterfacelimitexceeded"], ["privateipaddresslimitexceeded"]];
    "account-not-ready": "The AWS account may not use EC2 there yet.",
        "wait until AWS has verified the account; enable the region; accept the image's terms",
        [["pendingverification"], ["optinrequired"], ["account is blocked"]];
    "launch-settings": "EC2 does not take the class's launch settings together.",
        "correct what the message names in `launch` or in the launch template (`runyard doctor --config FILE --preflight`)",
        [["invalidparameter"], ["invalidlaunchtemplate"], ["invalidkeypair"], ["invalidplacementgroup"],
         ["invalidrequest"], ["missingparameter"]];
    "type-not-there": "EC2 does not offer this type in this zone or region, or not for this image.",
        "allow other types (allowedInstanceTypes) or other zones; match the image's architecture and boot mode",
        [["unsupported:"], ["unsupportedoperation"], ["is not supported in your requested availability zone"],
         ["instancetypes", "no type"], ["no instance type"], ["invalidinstancetype"]];
    "reservation-full": "The capacity reservation has no room, or does not fit.",
        "raise the reservation, or take it out of the launch template",
        [["reservationcapacityexceeded"], ["invalidcapacityreservation"]];
    "quota": "The account's quota of EC2 is used up.",
        "`runyard doctor --config FILE --preflight` names the quota; ask for a higher one, or lower `max`",
        [["vcpulimitexceeded"], ["instancelimitexceeded"], ["maxspotinstancecountexceeded"],
         ["resourcecountexceeded"]];
    "no-capacity": "EC2 has none of the allowed types in the allowed zones now.",
        "allow more types (allowedInstanceTypes) and subnets of more zones; `--on-demand-fallback` for spot",
        [["insufficientinstancecapacity"], ["insufficienthostcapacity"], ["unfulfillablecapacity"], ["no-capacity"],
         ["no spot capacity"], ["insufficientcapacity"], ["spotmaxpricetoolow"]];
    "image": "The image does not exist in this region, or is not the account's to use.",
        "name another image in launch.ami: an id, or `ssm:` and a parameter",
        [["invalidamiid"], ["invalidamiattribute"], ["parameternotfound"], ["no parameter /"]];
    "hardware": "EC2's own hardware or host failed.",
        "nothing: another machine takes its place",
        [["server.internalerror"], ["server.scheduledstop"], ["instance-retirement"], ["server.outofcapacity"]];
    "network-settings": "A subnet or security group of the class does not exist, or they are of different VPCs.",
        "correct launch.subnetIds and launch.securityGroupIds (`runyard doctor --config FILE` shows each)",
        [["invalidsubnet"], ["invalidgroup"], ["invalidsecuritygroupid"]];
    "volume-key": "EC2 may not use the key of the machine's volume.",
        "give the stack VolumeKeyArn, or name another key in launch.volume.kmsKeyId",
        [["client.invalidkmskey"], ["client.internalerror"], ["kmsinvalidstate"], ["kms key"], ["kms:"]];
    "volume": "EC2 could not make the machine's volume.",
        "raise launch.volume.gib to the image's size, or ask for a higher quota of volumes",
        [["client.volumelimitexceeded"], ["invalidblockdevicemapping"], ["client.invalidsnapshot"]];
    "spot-taken": "EC2 took the spot machine back.",
        "use `usageClass: on-demand`, or `--on-demand-fallback`, for runs that must not be interrupted",
        [["spotinstancetermination"], ["server.spotinstanceshutdown"], ["spot interruption"], ["reason interrupted"]];
    "left-behind": "A job left something that cannot be removed with certainty, so the machine was ended.",
        "take the cause out of the image or the job: the words beside this name it",
        [["are not", "and they were changed"], ["came to life again"], ["do not go"], ["what it left: "], ["reason cleanup-failed"]];
    "never-reported": "The agent never reported: it did not start, or does not reach DynamoDB with the machine's role.",
        "look at the machine's console (`runyard describe instance ID`), the route to DynamoDB and \
         launch.instanceProfile",
        [["never reported"]];
    "key-changed": "The machine's agent shows another key than at first: its record was written by somebody else.",
        "look at who may write the machine's record; the machine was ended for that",
        [["another key than at first"]];
    "agent-record-gone": "Somebody deleted the agent's record.",
        "see who may delete records of the table; nothing else removes them",
        [["the record of its agent is gone"]];
    "fell-silent": "The agent stopped reporting: the machine hangs, is out of memory, or lost its network.",
        "look at the machine's memory and console; allow larger types",
        [["reason unhealthy"], ["oom-kill"], ["out of memory"]];
    "stopped-itself": "The machine switched itself off or was ended by somebody else.",
        "CloudTrail (TerminateInstances, StopInstances) names who ended it; its console why it did so itself",
        [["client.userinitiatedshutdown"], ["client.instanceinitiatedshutdown"], ["reason vanished"]];
    "share-quota": "The share of this repository has what its quota in the class allows.",
        "wait until its own runs give machines back, or raise the quota (`sharing.quotas` of the pool)",
        [["quota: "], ["quota allows"], ["its quota"]];
    "over-max": "More machines are asked for than the class may ever have.",
        "ask for fewer (`--count`), or raise `max` (`runyard set pool CLASS max=N`)",
        [["overmax"]];
    "label-taken": "Another open request of the same owner has this label.",
        "give the request another `--name`, or wait until the other one is over",
        [["labeltaken"]];
    "key-taken": "The run asked under this name and attempt before, and that request is over.",
        "give the request another `--name`, or the number of the run's present attempt",
        [["keytaken"]];
    "invalid-request": "The request itself is not valid.",
        "correct what the message names",
        [["invalid: "]];
    "class-full": "The class has as many machines as `max` allows.",
        "raise `max` (`runyard set pool CLASS max=N`), or ask for fewer machines",
        [["as max allows"], ["at its max"], ["atmax"]];
    "class-paused": "The class is paused.",
        "`runyard resume CLASS`",
        [["is paused"]];
    "class-unknown": "There is no such class.",
        "correct `class` in the workflow: `runyard get pools` lists them",
        [["unknownclass"], ["no such class"], ["there is no class"]];
    "not-allowed": "The class does not admit this repository.",
        "add it to the pool's `repositories`, or use another class",
        [["notallowed"], ["does not admit"], ["may not use class"]];
    "too-many": "The repository has as many open requests as it may have.",
        "release finished ones, or raise limits.requests_per_repository",
        [["toomany"]];
    "launch-refused": "EC2 refused the launches of the class, so they are held back.",
        "correct what the message names; launches are tried again by themselves",
        [["was refused"], ["launchfailed"]];
    // The remaining causes, for records without further messages: a reason of the record, and its meaning.
    "boot-failed": "The machine's first boot failed.",
        "`runyard logs instance ID` and the machine's console say where; `runyard try CLASS` shows a boot as it goes",
        [["reason boot-failed"], ["its agent says ud_failed"]];
    "registration-failed": "The machine's runner could not be registered with GitHub.",
        "`runyard logs instance ID` has the runner's words; `runyard doctor --config FILE` tries the credential",
        [["reason registration-failed"], ["its agent says ud_reg_failed"]];
    "overdue": "The machine passed the deadline of its state.",
        "`runyard logs instance ID` shows where it hung; a job that may take longer needs a longer maximum runtime",
        [["reason threshold"], ["past its deadline"]];
    "launches-held-back": "Launches of the class are held back after failures.",
        "`runyard events pool CLASS` has the failures; launches are tried again by themselves",
        [["failures in a row"], ["held back"]];
    "not-in-time": "No machine became ready before the request's deadline.",
        "`runyard explain pool CLASS` shows what the class lacks; a longer `--timeout` gives it more time",
        [["deadlinepassed"]];
}

impl Cause {
    fn fits(&self, said: &str) -> bool {
        self.signs.iter().any(|parts| {
            let mut rest = said;
            parts.iter().all(|part| rest.split_once(part).map(|(_, after)| rest = after).is_some())
        })
    }
}

/// Causes for records without an explanation: they rank below all others.
const GENERAL: [&str; 9] = [
    "never-reported",
    "fell-silent",
    "stopped-itself",
    "boot-failed",
    "registration-failed",
    "overdue",
    "launch-refused",
    "launches-held-back",
    "not-in-time",
];

/// Returns the causes that the messages indicate, each once, with the first message that matched. Earlier messages rank
/// first; causes that only repeat a reason rank below all that explain it.
pub fn probable<'a>(said: impl IntoIterator<Item = &'a str>) -> Vec<Probable<'a>> {
    let mut found: Vec<Probable<'a>> = Vec::new();
    for said in said {
        let small = said.to_lowercase();
        let cause = CAUSES.iter().find(|cause| cause.fits(&small));
        let new = cause.filter(|cause| found.iter().all(|one| one.cause.name != cause.name));
        found.extend(new.map(|cause| Probable { cause, said }));
    }
    found.sort_by_key(|one| GENERAL.contains(&one.cause.name));
    found
}

#[cfg(test)]
mod tests;
