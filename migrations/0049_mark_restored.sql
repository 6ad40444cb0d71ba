-- `headway admin restore` says here of when the backup was. A leader that finds it grants no GPUs until the nodes have said what they run since, or have had the
-- time to, and takes it away then. A release before this one neither writes nor reads it.
ALTER TABLE cluster ADD COLUMN restored_backup_at timestamptz;
