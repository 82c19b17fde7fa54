package payments

import (
	"context"
	"fmt"
	"net/http"

	"github.com/onlyonce-go/onlyonce/apps/payments/db"
	"github.com/onlyonce-go/onlyonce/apps/payments/money"
	"github.com/onlyonce-go/onlyonce/oncehttp"
)

// product is something that can be ordered, and how many there are left.
type product struct {
	ID       string         `json:"id"`
	Name     string         `json:"name"`
	Price    int64          `json:"price"`
	Currency money.Currency `json:"currency"`
	Stock    int64          `json:"stock"`
}

// firstProducts are what a new merchant has.
func firstProducts() []product {
	return []product{
		{ID: "prod_mate", Name: "Mate gourd", Price: 1500, Currency: "ARS", Stock: 100},
		{ID: "prod_bombilla", Name: "Bombilla", Price: 900, Currency: "ARS", Stock: 250},
		{ID: "prod_yerba", Name: "Yerba mate, 1 kg", Price: 4200, Currency: "ARS", Stock: 40},
		{ID: "prod_poster", Name: "Poster", Price: 1200, Currency: "EUR", Stock: 25},
		{ID: "prod_last_one", Name: "The last one", Price: 99900, Currency: "ARS", Stock: 1},
	}
}

// seed gives merchants their first products; those that are there stay.
func (s *Service) seed(ctx context.Context) error {
	return s.cfg.DB.Write(ctx, func(ctx context.Context, tx db.Tx) error {
		for _, merchant := range s.cfg.Merchants.names() {
			for _, p := range firstProducts() {
				_, err := tx.Exec(ctx, `INSERT INTO payments_products (merchant, id, name, price, currency, stock)
					VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (merchant, id) DO NOTHING`,
					merchant, p.ID, p.Name, p.Price, string(p.Currency), p.Stock)
				if err != nil {
					return fmt.Errorf("insert product %s: %w", p.ID, err)
				}
			}
		}
		return nil
	})
}

func (s *Service) getProducts(w http.ResponseWriter, r *http.Request) {
	products := []product{}
	err := s.cfg.DB.Read(r.Context(), func(ctx context.Context, tx db.Tx) error {
		return tx.Each(ctx, `SELECT id, name, price, currency, stock FROM payments_products WHERE merchant = ? ORDER BY id`,
			[]any{merchantOf(ctx)}, func(row db.Row) error {
				var p product
				var currency string
				if err := row.Scan(&p.ID, &p.Name, &p.Price, &currency, &p.Stock); err != nil {
					return err
				}
				p.Currency = money.Currency(currency)
				products = append(products, p)
				return nil
			})
	})
	if err != nil {
		s.broken(w, r, fmt.Errorf("list products: %w", err))
		return
	}
	send(w, oncehttp.JSON(http.StatusOK, map[string]any{"data": products}))
}
