# What a yard stands on, as config/cloudformation.yaml makes it. `runyard init` makes the same table and queues.

resource "aws_dynamodb_table" "table" {
  name                        = var.table_name
  billing_mode                = "PAY_PER_REQUEST"
  deletion_protection_enabled = true
  hash_key                    = "pk"
  range_key                   = "sk"
  stream_enabled              = true
  stream_view_type            = "NEW_AND_OLD_IMAGES"
  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  ttl {
    attribute_name = "expiresAt"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
}

# Events and what is over; nothing waits for it, and no list reads it.
resource "aws_dynamodb_table" "history" {
  name                        = "${var.table_name}-history"
  billing_mode                = "PAY_PER_REQUEST"
  deletion_protection_enabled = true
  hash_key                    = "pk"
  range_key                   = "sk"
  attribute {
    name = "pk"
    type = "S"
  }
  attribute {
    name = "sk"
    type = "S"
  }
  ttl {
    attribute_name = "expiresAt"
    enabled        = true
  }
  point_in_time_recovery {
    enabled = true
  }
}

resource "aws_sqs_queue" "dead" {
  for_each                  = toset(concat(var.classes, ["interruptions"]))
  name                      = "${var.table_name}-${each.key}-dead"
  message_retention_seconds = 1209600
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue" "queue" {
  for_each                   = toset(concat(var.classes, ["interruptions"]))
  name                       = "${var.table_name}-${each.key}"
  # Of a class: twice timing.reannounce of the operator. Of interruptions: SQS's default.
  message_retention_seconds  = each.key == "interruptions" ? 345600 : 600
  visibility_timeout_seconds = 30
  sqs_managed_sse_enabled    = true
  redrive_policy = jsonencode({
    deadLetterTargetArn = aws_sqs_queue.dead[each.key].arn
    maxReceiveCount     = each.key == "interruptions" ? 10 : 1000
  })
}

# Rings of whoever writes an intent; worth nothing after a minute.
resource "aws_sqs_queue" "doorbell" {
  name                      = "${var.table_name}-doorbell"
  message_retention_seconds = 60
  sqs_managed_sse_enabled   = true
}

# GitHub's word that jobs were queued; worth nothing after some minutes.
resource "aws_sqs_queue" "jobs" {
  name                      = "${var.table_name}-jobs"
  message_retention_seconds = 300
  max_message_size          = 262144
  sqs_managed_sse_enabled   = true
}

resource "aws_sqs_queue_policy" "interruptions" {
  queue_url = aws_sqs_queue.queue["interruptions"].url
  policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Sid       = "Events"
      Effect    = "Allow"
      Principal = { Service = "events.amazonaws.com" }
      Action    = "sqs:SendMessage"
      Resource  = aws_sqs_queue.queue["interruptions"].arn
      Condition = { StringEquals = { "aws:SourceAccount" = local.account } }
    }]
  })
}

locals {
  rules = {
    SpotInterruptions = {
      source        = ["aws.ec2"]
      "detail-type" = ["EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"]
    }
    StateChanges = {
      source        = ["aws.ec2"]
      "detail-type" = ["EC2 Instance State-change Notification"]
      detail        = { state = ["stopping", "stopped", "shutting-down", "terminated"] }
    }
    ScheduledChanges = {
      source        = ["aws.health"]
      "detail-type" = ["AWS Health Event"]
      detail        = { service = ["EC2"], eventTypeCategory = ["scheduledChange"] }
    }
  }
}

resource "aws_cloudwatch_event_rule" "rule" {
  for_each      = local.rules
  name          = "${var.table_name}-${each.key}"
  event_pattern = jsonencode(each.value)
}

resource "aws_cloudwatch_event_target" "rule" {
  for_each  = local.rules
  rule      = aws_cloudwatch_event_rule.rule[each.key].name
  target_id = "interruptions"
  arn       = aws_sqs_queue.queue["interruptions"].arn
}

resource "aws_security_group" "machine" {
  count       = var.vpc_id == "" ? 0 : 1
  description = "Machines of Runyard reach out, and nothing reaches them"
  vpc_id      = var.vpc_id
  egress {
    protocol         = "-1"
    from_port        = 0
    to_port          = 0
    cidr_blocks      = ["0.0.0.0/0"]
    ipv6_cidr_blocks = ["::/0"]
  }
}

resource "aws_vpc_endpoint" "table" {
  count             = var.vpc_id != "" && length(var.route_table_ids) > 0 ? 1 : 0
  vpc_endpoint_type = "Gateway"
  service_name      = "com.amazonaws.${local.region}.dynamodb"
  vpc_id            = var.vpc_id
  route_table_ids   = var.route_table_ids
}
