//! What does a workflow see of GitHub? The stand-in of a served directory over HTTP: runs, their jobs, the runners that
//! are registered. While it is away there is no answer.

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

/// The stand-in GitHub.
#[derive(Clone)]
pub(crate) struct GitHub {
    http: reqwest::Client,
    url: String,
    token: String,
}

impl GitHub {
    /// The one of this data directory.
    pub(crate) fn of(dir: &Path) -> Self {
        let file = |name: &str| {
            let text =
                fs::read_to_string(dir.join("github").join(name)).expect("the stand-in keeps it there");
            text.trim().to_owned()
        };
        let http = reqwest::Client::builder().timeout(Duration::from_secs(5)).build().expect("a client");
        Self { http, url: format!("http://127.0.0.1:{}", file("api.port")), token: file("github-token") }
    }

    async fn get(&self, path: &str) -> Option<Value> {
        let asked = self.http.get(format!("{}{path}", self.url)).bearer_auth(&self.token);
        let answer = asked.send().await.ok()?;
        if answer.status() == reqwest::StatusCode::NOT_FOUND {
            return Some(Value::Null);
        }
        answer.error_for_status().ok()?.json().await.ok()
    }

    async fn post(&self, path: &str, body: &Value) -> Option<()> {
        let asked = self.http.post(format!("{}{path}", self.url)).bearer_auth(&self.token).json(body);
        asked.send().await.ok()?.error_for_status().ok().map(drop)
    }

    /// Makes sure that a run is there, open, as yet without jobs.
    pub(crate) async fn run_opened(&self, repository: &str, run: u64) -> Option<()> {
        if self.get(&format!("/_workflow/runs/{run}")).await?.is_null() {
            let body = json!({"repository": repository, "run_id": run, "open": true});
            self.post("/_workflow/runs", &body).await?;
        }
        Some(())
    }

    /// Makes sure that a run has jobs.
    pub(crate) async fn jobs_queued(&self, run: u64, jobs: &[Value]) -> Option<()> {
        if self.jobs(run).await?.is_empty() { self.jobs_added(run, jobs).await } else { Some(()) }
    }

    /// Queues jobs of a run that may have some.
    pub(crate) async fn jobs_added(&self, run: u64, jobs: &[Value]) -> Option<()> {
        self.post(&format!("/_workflow/runs/{run}/jobs"), &json!({"jobs": jobs, "open": true})).await
    }

    /// The jobs of a run.
    pub(crate) async fn jobs(&self, run: u64) -> Option<Vec<Value>> {
        self.get(&format!("/_workflow/runs/{run}")).await?["jobs"].as_array().cloned()
    }

    /// Ends a run.
    pub(crate) async fn run_ended(&self, run: u64) -> Option<()> {
        self.post(&format!("/_workflow/runs/{run}/cancel"), &json!({})).await
    }

    /// Has a run's failed jobs run again, as by GitHub's button.
    pub(crate) async fn failed_jobs_run_again(&self, repository: &str, run: u64) -> Option<()> {
        self.post(&format!("/repos/{repository}/actions/runs/{run}/rerun-failed-jobs"), &json!({})).await
    }

    /// Deletes the registered runners of a label, as a person at GitHub does.
    pub(crate) async fn runners_deleted(&self, repository: &str, label: &str) -> Option<()> {
        let listed = self.get(&format!("/repos/{repository}/actions/runners?per_page=100")).await?;
        for runner in listed["runners"].as_array()? {
            let labels = runner["labels"].as_array()?;
            if labels.iter().any(|one| one["name"] == label) {
                let path = format!("{}/repos/{repository}/actions/runners/{}", self.url, runner["id"]);
                let _ = self.http.delete(path).bearer_auth(&self.token).send().await.ok()?;
            }
        }
        Some(())
    }

    /// The names of the registered runners.
    pub(crate) async fn runners(&self, repository: &str) -> Option<Vec<String>> {
        let listed = self.get(&format!("/repos/{repository}/actions/runners?per_page=100")).await?;
        let runners = listed["runners"].as_array()?;
        Some(runners.iter().map(|runner| runner["name"].as_str().unwrap_or("?").to_owned()).collect())
    }
}
