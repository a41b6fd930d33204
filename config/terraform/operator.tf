# The operator itself, where operator_image or operator_url names it: a service of ECS on Fargate.

resource "aws_ecs_cluster" "operator" {
  count = local.operators
  name  = var.table_name
  lifecycle {
    precondition {
      condition     = alltrue([for needed in [var.vpc_id, join(",", var.subnet_ids), var.github_secret_arn, var.runner_url, var.runner_sha256, var.runner_version] : needed != ""])
      error_message = "An operator needs vpc_id, subnet_ids, github_secret_arn, runner_url, runner_sha256 and runner_version."
    }
    precondition {
      condition     = var.operator_url == "" || (var.operator_image == "" && var.operator_sha256 != "")
      error_message = "operator_url needs operator_sha256, and an empty operator_image."
    }
  }
}

resource "aws_cloudwatch_log_group" "operator" {
  count             = local.operators
  name              = "/runyard/${var.table_name}"
  retention_in_days = 30
}

resource "aws_security_group" "operator" {
  count       = local.operators
  description = "Operators of Runyard reach out, and nothing reaches them"
  vpc_id      = var.vpc_id
  egress {
    protocol         = "-1"
    from_port        = 0
    to_port          = 0
    cidr_blocks      = ["0.0.0.0/0"]
    ipv6_cidr_blocks = ["::/0"]
  }
}

resource "aws_iam_role" "operator_task" {
  count       = local.operators
  name_prefix = "${substr(var.table_name, 0, 24)}-task-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ecs-tasks.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "operator_task" {
  count      = local.operators
  role       = aws_iam_role.operator_task[0].name
  policy_arn = aws_iam_policy.operator.arn
}

resource "aws_iam_role_policy_attachment" "operator_task_volume_key" {
  count      = var.volume_key_arn == "" ? 0 : local.operators
  role       = aws_iam_role.operator_task[0].name
  policy_arn = aws_iam_policy.operator_volume_key[0].arn
}

# What ECS itself may: fetch the image, write the log, read the one secret.
resource "aws_iam_role" "operator_start" {
  count       = local.operators
  name_prefix = "${substr(var.table_name, 0, 24)}-start-"
  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Principal = { Service = "ecs-tasks.amazonaws.com" }
      Action    = "sts:AssumeRole"
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "operator_start" {
  count      = local.operators
  role       = aws_iam_role.operator_start[0].name
  policy_arn = "arn:${local.partition}:iam::aws:policy/service-role/AmazonECSTaskExecutionRolePolicy"
}

resource "aws_iam_role_policy" "operator_start" {
  count = local.operators
  name  = "secret"
  role  = aws_iam_role.operator_start[0].id
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect   = "Allow"
      Action   = "secretsmanager:GetSecretValue"
      Resource = var.github_secret_arn
    }]
  })
}

locals {
  operators = "${var.operator_image}${var.operator_url}" == "" ? 0 : 1
  program   = var.operator_url == "" ? "/usr/local/bin/runyard" : "/opt/runyard/runyard"
  logs = {
    logDriver = "awslogs"
    options = {
      "awslogs-group"         = "/runyard/${var.table_name}"
      "awslogs-region"        = local.region
      "awslogs-stream-prefix" = "operator"
    }
  }
  environment = {
    AWS_REGION                    = local.region
    RUNYARD_TABLE                 = var.table_name
    RUNYARD_INTERRUPTIONS__QUEUE  = "${var.table_name}-interruptions"
    RUNYARD_LOG__FORMAT           = "json"
    RUNYARD_GITHUB__SCOPE         = var.github_scope
    RUNYARD_GITHUB__APP_ID        = var.github_app_id
    RUNYARD_AGENT__RUNNER_URL     = var.runner_url
    RUNYARD_AGENT__RUNNER_SHA256  = var.runner_sha256
    RUNYARD_AGENT__RUNNER_VERSION = var.runner_version
    RUNYARD_AGENT__RUNNER_FOLLOW  = var.runner_follow
    # A package that is not there cannot be followed.
    RUNYARD_AGENT__RUNNER_FOLLOW_ARM64 = var.runner_url_arm64 == "" ? "pin" : var.runner_follow
    # What is empty counts as left out.
    RUNYARD_AGENT__RUNNER_URL_ARM64    = var.runner_url_arm64
    RUNYARD_AGENT__RUNNER_SHA256_ARM64 = var.runner_sha256_arm64
    RUNYARD_AGENT__URL                 = var.agent_url
    RUNYARD_AGENT__SHA256              = var.agent_sha256
    RUNYARD_AGENT__URL_ARM64           = var.agent_url_arm64
    RUNYARD_AGENT__SHA256_ARM64        = var.agent_sha256_arm64
  }
  credential_key = var.github_app_id == "" ? "RUNYARD_GITHUB__TOKEN_FILE" : "RUNYARD_GITHUB__APP_KEY_FILE"
}

resource "aws_ecs_task_definition" "operator" {
  count                    = local.operators
  family                   = "${var.table_name}-operator"
  requires_compatibilities = ["FARGATE"]
  network_mode             = "awsvpc"
  cpu                      = 256
  memory                   = 512
  task_role_arn            = aws_iam_role.operator_task[0].arn
  execution_role_arn       = aws_iam_role.operator_start[0].arn
  runtime_platform {
    operating_system_family = "LINUX"
    cpu_architecture        = var.operator_architecture
  }
  volume {
    name = "github"
  }
  volume {
    name = "program"
  }
  container_definitions = jsonencode([
    # The operator takes credentials from files alone, ECS gives them by the environment alone: this one, which ends at
    # once, hands it on. It fetches the program too, where that is in no image.
    {
      name       = "files"
      image      = var.helper_image
      essential  = false
      entryPoint = ["sh", "-c"]
      command = [join(" ", [
        "umask 077 && printf \"%s\\n\" \"$CREDENTIAL\" >/run/github/credential && chown 10001:10001 /run/github/credential &&",
        "if [ -n \"$PROGRAM_URL\" ]; then",
        "curl --fail --silent --show-error --location --proto =https --retry 5 --output /opt/runyard/runyard \"$PROGRAM_URL\" &&",
        "echo \"$PROGRAM_SHA256  /opt/runyard/runyard\" | sha256sum -c - && chmod 0755 /opt/runyard/runyard;",
        "fi",
      ])]
      secrets          = [{ name = "CREDENTIAL", valueFrom = var.github_secret_arn }]
      environment      = [{ name = "PROGRAM_URL", value = var.operator_url }, { name = "PROGRAM_SHA256", value = var.operator_sha256 }]
      mountPoints      = [{ sourceVolume = "github", containerPath = "/run/github" }, { sourceVolume = "program", containerPath = "/opt/runyard" }]
      logConfiguration = local.logs
    },
    {
      name                   = "operator"
      image                  = var.operator_url == "" ? var.operator_image : var.helper_image
      essential              = true
      entryPoint             = [local.program]
      command                = ["operator"]
      dependsOn              = [{ containerName = "files", condition = "SUCCESS" }]
      readonlyRootFilesystem = true
      user                   = "10001:10001"
      stopTimeout            = 60
      healthCheck            = { command = ["CMD", local.program, "operator", "--healthcheck"], interval = 30, timeout = 10, retries = 3, startPeriod = 120 }
      mountPoints            = [{ sourceVolume = "github", containerPath = "/run/github", readOnly = true }, { sourceVolume = "program", containerPath = "/opt/runyard", readOnly = true }]
      environment            = [for name, value in merge(local.environment, { (local.credential_key) = "/run/github/credential" }) : { name = name, value = value }]
      logConfiguration       = local.logs
    },
  ])
}

resource "aws_ecs_service" "operator" {
  count           = local.operators
  name            = "operator"
  cluster         = aws_ecs_cluster.operator[0].id
  launch_type     = "FARGATE"
  task_definition = aws_ecs_task_definition.operator[0].arn
  # Its task names them, or has the roles before they have their policies.
  depends_on = [
    aws_dynamodb_table.table,
    aws_dynamodb_table.history,
    aws_sqs_queue.doorbell,
    aws_sqs_queue.jobs,
    aws_sqs_queue.queue,
    aws_cloudwatch_log_group.operator,
    aws_iam_role_policy_attachment.operator_task,
    aws_iam_role_policy_attachment.operator_task_volume_key,
    aws_iam_role_policy_attachment.operator_start,
    aws_iam_role_policy.operator_start,
  ]
  # One leads, the other takes over within seconds. In a deployment one goes before its successor comes: two may read
  # the table's stream, and no third.
  desired_count                      = 2
  deployment_maximum_percent         = 100
  deployment_minimum_healthy_percent = 50
  deployment_circuit_breaker {
    enable   = true
    rollback = true
  }
  network_configuration {
    assign_public_ip = var.operator_public_ip
    security_groups  = [aws_security_group.operator[0].id]
    subnets          = var.subnet_ids
  }
}
