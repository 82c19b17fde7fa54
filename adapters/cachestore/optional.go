package cachestore

import (
	"context"

	"github.com/onlyonce-go/onlyonce"
)

func (s *Store) steps() onlyonce.StepStore        { return s.Store.(onlyonce.StepStore) }     //nolint:forcetypeassert // documented to panic
func (s *Store) settings() onlyonce.SettingStore  { return s.Store.(onlyonce.SettingStore) }  //nolint:forcetypeassert // documented to panic
func (s *Store) operator() onlyonce.OperatorStore { return s.Store.(onlyonce.OperatorStore) } //nolint:forcetypeassert // documented to panic
func (s *Store) recovery() onlyonce.RecoveryStore { return s.Store.(onlyonce.RecoveryStore) } //nolint:forcetypeassert // documented to panic

// BeginStep is the store's.
func (s *Store) BeginStep(ctx context.Context, owner onlyonce.Owner, intent onlyonce.Intent) (bool, error) {
	return s.steps().BeginStep(ctx, owner, intent)
}

// EndStep is the store's.
func (s *Store) EndStep(ctx context.Context, owner onlyonce.Owner, end onlyonce.StepEnd) (bool, error) {
	return s.steps().EndStep(ctx, owner, end)
}

// Steps is the store's.
func (s *Store) Steps(ctx context.Context, key onlyonce.Key) ([]onlyonce.StepRecord, error) {
	return s.steps().Steps(ctx, key)
}

// Setting is the store's.
func (s *Store) Setting(ctx context.Context, kind, id string) ([]byte, bool, error) {
	return s.settings().Setting(ctx, kind, id)
}

// AddSetting is the store's.
func (s *Store) AddSetting(ctx context.Context, kind, id string, value []byte) ([]byte, error) {
	return s.settings().AddSetting(ctx, kind, id, value)
}

// List is the store's.
func (s *Store) List(ctx context.Context, filter onlyonce.ListFilter) (onlyonce.ListPage, error) {
	return s.operator().List(ctx, filter)
}

// AddAudit is the store's.
func (s *Store) AddAudit(ctx context.Context, entry onlyonce.AuditEntry) error {
	return s.operator().AddAudit(ctx, entry)
}

// Audit is the store's.
func (s *Store) Audit(ctx context.Context, key onlyonce.Key) ([]onlyonce.AuditEntry, error) {
	return s.operator().Audit(ctx, key)
}

// Due is the store's.
func (s *Store) Due(ctx context.Context, req onlyonce.DueRequest) ([]onlyonce.Due, error) {
	return s.recovery().Due(ctx, req)
}

// Kept is the store's.
func (s *Store) Kept(ctx context.Context, key onlyonce.Key) ([]byte, bool, error) {
	return s.recovery().Kept(ctx, key)
}

// Requeue is the store's.
func (s *Store) Requeue(ctx context.Context, key onlyonce.Key) (bool, error) {
	return s.recovery().Requeue(ctx, key)
}
