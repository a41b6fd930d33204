# The documents of config/iam, for this account: the same that config/cloudformation.yaml makes (a test compares them).

locals {
  partition = data.aws_partition.current.partition
  suffix    = data.aws_partition.current.dns_suffix
  region    = data.aws_region.current.name
  account   = data.aws_caller_identity.current.account_id

  # By their order: what is filled in is never taken for a placeholder.
  documents = {
    for name in ["operator", "operator-volume-key", "workflow", "init", "reader", "webhook", "instance", "instance-any-record"] :
    name => replace(replace(replace(replace(replace(replace(replace(replace(
      file("${path.module}/../iam/${name}.json"),
      "ec2.REGION.amazonaws.com", "ec2.${local.region}.${local.suffix}"),
      "arn:aws:", "arn:${local.partition}:"),
      "REGION", local.region),
      "ACCOUNT", local.account),
      "OWNER", lower(var.github_owner)),
      "VOLUMEKEY", var.volume_key_arn),
      "TABLE", var.table_name),
      "[\"INSTANCETYPES\"]", jsonencode(var.instance_types))
  }

  # Without the one condition of launch templates, and without conditions that were nothing else.
  operator_by_tags = jsonencode({
    Version = jsondecode(local.documents["operator"]).Version
    Statement = [
      for statement in jsondecode(local.documents["operator"]).Statement : merge(
        { for name, value in statement : name => value if name != "Condition" },
        {
          for name, value in {
            Condition = { for test, keys in lookup(statement, "Condition", {}) : test => keys if test != "ArnLike" }
          } : name => value if length(value) > 0
        }
      )
    ]
  })
}

resource "aws_iam_policy" "operator" {
  name   = "${var.table_name}-operator"
  policy = var.launch_fence == "template" ? local.documents["operator"] : local.operator_by_tags
}

resource "aws_iam_policy" "operator_volume_key" {
  count  = var.volume_key_arn == "" ? 0 : 1
  name   = "${var.table_name}-operator-volume-key"
  policy = local.documents["operator-volume-key"]
}

resource "aws_iam_policy" "workflow" {
  name   = "${var.table_name}-workflow"
  policy = local.documents["workflow"]
}

resource "aws_iam_policy" "init" {
  name   = "${var.table_name}-init"
  policy = local.documents["init"]
}

resource "aws_iam_policy" "reader" {
  name   = "${var.table_name}-reader"
  policy = local.documents["reader"]
}

resource "aws_iam_role" "machine" {
  name = "${var.table_name}-machine"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ec2.${local.suffix}" }
      Action    = "sts:AssumeRole"
    }]
  })
}

resource "aws_iam_role_policy" "machine" {
  name   = "runyard"
  role   = aws_iam_role.machine.id
  policy = var.machine_fence == "own-record" ? local.documents["instance"] : local.documents["instance-any-record"]
}

resource "aws_iam_instance_profile" "machine" {
  name = "${var.table_name}-machine"
  role = aws_iam_role.machine.name
}

resource "aws_iam_role" "operator" {
  count       = var.pod_identity ? 1 : 0
  name_prefix = "${substr(var.table_name, 0, 24)}-operator-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
      Condition = { StringEquals = { "aws:RequestTag/kubernetes-service-account" = "runyard" } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "operator" {
  count      = var.pod_identity ? 1 : 0
  role       = aws_iam_role.operator[0].name
  policy_arn = aws_iam_policy.operator.arn
}

resource "aws_iam_role_policy_attachment" "operator_volume_key" {
  count      = var.pod_identity && var.volume_key_arn != "" ? 1 : 0
  role       = aws_iam_role.operator[0].name
  policy_arn = aws_iam_policy.operator_volume_key[0].arn
}

resource "aws_iam_role" "init" {
  count       = var.pod_identity ? 1 : 0
  name_prefix = "${substr(var.table_name, 0, 24)}-init-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "pods.eks.amazonaws.com" }
      Action    = ["sts:AssumeRole", "sts:TagSession"]
      Condition = { StringEquals = { "aws:RequestTag/kubernetes-service-account" = "runyard-setup" } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "init" {
  count      = var.pod_identity ? 1 : 0
  role       = aws_iam_role.init[0].name
  policy_arn = aws_iam_policy.init.arn
}

resource "aws_iam_openid_connect_provider" "github" {
  count          = var.github_oidc_provider == "create" ? 1 : 0
  url            = "https://token.actions.githubusercontent.com"
  client_id_list = ["sts.amazonaws.com"]
}

resource "aws_iam_role" "workflow" {
  count       = var.github_oidc_provider == "" ? 0 : 1
  name_prefix = "${substr(var.table_name, 0, 24)}-workflow-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Federated = var.github_oidc_provider == "create" ? aws_iam_openid_connect_provider.github[0].arn : var.github_oidc_provider }
      Action    = "sts:AssumeRoleWithWebIdentity"
      Condition = {
        StringEquals = { "token.actions.githubusercontent.com:aud" = "sts.amazonaws.com" }
        # Repositories made, renamed or moved since July 2026 carry ids. A name cannot hold `@`.
        StringLike = {
          "token.actions.githubusercontent.com:sub" = [
            "repo:${var.github_owner}/*",
            "repo:${var.github_owner}@${var.github_owner_id}/*",
          ]
        }
      }
    }]
  })
  lifecycle {
    precondition {
      condition     = var.github_owner_id != ""
      error_message = "github_owner_id is empty: set it to what `gh api users/OWNER --jq .id` says."
    }
  }
}

resource "aws_iam_role_policy_attachment" "workflow" {
  count      = var.github_oidc_provider == "" ? 0 : 1
  role       = aws_iam_role.workflow[0].name
  policy_arn = aws_iam_policy.workflow.arn
}
